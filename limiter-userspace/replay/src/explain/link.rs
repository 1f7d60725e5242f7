//! Link types (www.tcpdump.org/linktypes.html), and the original frames of cooked captures.

use limiter_model::Framing;

/// Ethernet, and IP without a header before it: of either version, or of one only.
const ETHERNET: i32 = 1;
const RAW: i32 = 101;
const RAW_V4: i32 = 228;
const RAW_V6: i32 = 229;
/// Values that BSD systems write for `RAW`.
const RAW_BSD: [i32; 2] = [12, 14];
/// Captures on `any`: the older header, and the newer one, which contains the interface.
const COOKED: i32 = 113;
const COOKED_2: i32 = 276;

/// Bytes of an Ethernet header, and of its two addresses.
const HEADER: u64 = 14;
const ADDRESSES: usize = 12;

/// The packet type of a cooked packet that went out.
const OUTGOING: u8 = 4;

/// Kinds of interfaces (`ARPHRD_...` of Linux) whose packets begin with an IP header: PPP, raw IP,
/// tunnels of every sort, and no link layer.
const BARE: [u16; 8] = [512, 519, 768, 769, 776, 778, 823, 65_534];

/// Ethernet's protocol numbers of IPv4 and IPv6.
const IP: [u16; 2] = [0x0800, 0x86dd];

/// Headers at the beginning of packets of a link type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// Packets as on the interface.
    Plain(Framing),
    /// A cooked header instead of the packet's own link header.
    Cooked,
    /// Like [`Link::Cooked`], with the interface.
    Cooked2,
}

/// A frame as it was on the interface.
pub(super) struct Frame {
    pub(super) framing: Framing,
    pub(super) bytes: Vec<u8>,
    /// Length of the whole frame.
    pub(super) length: u64,
    pub(super) outbound: bool,
    /// Index of the interface, if the packet contains it.
    pub(super) interface: Option<u32>,
}

/// Content of a cooked header.
struct Cooked {
    protocol: u16,
    hardware: u16,
    kind: u8,
    /// The sender's address, cut to the size of an Ethernet address.
    sender: [u8; 6],
    interface: Option<u32>,
}

impl Link {
    pub(super) fn of(number: i32) -> Option<Self> {
        match number {
            ETHERNET => Some(Self::Plain(Framing::Ethernet)),
            RAW | RAW_V4 | RAW_V6 => Some(Self::Plain(Framing::Layer3)),
            other if RAW_BSD.contains(&other) => Some(Self::Plain(Framing::Layer3)),
            COOKED => Some(Self::Cooked),
            COOKED_2 => Some(Self::Cooked2),
            _ => None,
        }
    }

    /// The original frame of a packet in the file. `captured` may be only its beginning.
    pub(super) fn frame(self, captured: &[u8], length: u32) -> Frame {
        let size = match self {
            Self::Plain(framing) => {
                let (bytes, length) = (captured.to_vec(), u64::from(length));
                return Frame { framing, bytes, length, outbound: false, interface: None };
            }
            Self::Cooked => 16,
            Self::Cooked2 => 20,
        };
        let read = match self {
            Self::Cooked2 => cooked_2(captured),
            _ => cooked(captured),
        };
        let payload = captured.get(size..).unwrap_or_default();
        let behind = u64::from(length).saturating_sub(u64::try_from(size).unwrap_or(0));
        let Some(header) = read else {
            // The packet is cut off within its header, so nothing is known about it.
            let framing = Framing::Ethernet;
            let length = HEADER + behind;
            return Frame { framing, bytes: Vec::new(), length, outbound: false, interface: None };
        };
        let Cooked { protocol, hardware, kind, sender, interface } = header;
        let outbound = kind == OUTGOING;
        if BARE.contains(&hardware) && IP.contains(&protocol) {
            let (framing, bytes) = (Framing::Layer3, payload.to_vec());
            return Frame { framing, bytes, length: behind, outbound, interface };
        }
        let mut bytes = Vec::with_capacity(ADDRESSES + 2 + payload.len());
        bytes.extend([0; 6]);
        bytes.extend(sender);
        bytes.extend(protocol.to_be_bytes());
        bytes.extend(payload);
        let framing = Framing::Ethernet;
        Frame { framing, bytes, length: HEADER + behind, outbound, interface }
    }
}

/// Reads a two-byte number at an offset.
fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk::<2>()?))
}

fn sender(bytes: &[u8], at: usize) -> Option<[u8; 6]> {
    bytes.get(at..)?.first_chunk::<6>().copied()
}

/// Fields: kind, hardware, length of the address, address, protocol.
fn cooked(bytes: &[u8]) -> Option<Cooked> {
    let kind = short(bytes, 0)?.to_be_bytes()[1];
    let (hardware, protocol) = (short(bytes, 2)?, short(bytes, 14)?);
    Some(Cooked { protocol, hardware, kind, sender: sender(bytes, 6)?, interface: None })
}

/// Fields: protocol, two reserved bytes, interface, hardware, kind, length of the address, address.
fn cooked_2(bytes: &[u8]) -> Option<Cooked> {
    let interface = u32::from_be_bytes(*bytes.get(4..)?.first_chunk::<4>()?);
    let (protocol, hardware) = (short(bytes, 0)?, short(bytes, 8)?);
    let (kind, sender) = (*bytes.get(10)?, sender(bytes, 12)?);
    Some(Cooked { protocol, hardware, kind, sender, interface: Some(interface) })
}

/// Name of an unsupported link type, and how to capture without it.
pub(super) fn link_name(link: i32) -> (&'static str, &'static str) {
    match link {
        105 | 119 | 127 | 163 => ("wireless", ", not in monitor mode"),
        0 | 108 => ("loopback of BSD", ", not on the loopback"),
        _ => ("unknown here", ""),
    }
}
