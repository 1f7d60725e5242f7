//! Link types (www.tcpdump.org/linktypes.html), and frames of cooked captures as the interface had
//! them.

use limiter_model::Framing;

/// Ethernet, and IP without a header before it, of either version or of one.
const ETHERNET: i32 = 1;
const RAW: i32 = 101;
const RAW_V4: i32 = 228;
const RAW_V6: i32 = 229;
/// Values that BSD systems write for `RAW`.
const RAW_BSD: [i32; 2] = [12, 14];
/// Captures on `any`: the older header, and the one that has the interface.
const COOKED: i32 = 113;
const COOKED_2: i32 = 276;

/// Bytes of an Ethernet header, and of its two addresses.
const HEADER: u64 = 14;
const ADDRESSES: usize = 12;

/// The kind of a cooked packet that went out.
const OUTGOING: u8 = 4;

/// Kinds of interfaces (`ARPHRD_...` of Linux) whose packets begin with their IP header: PPP, raw
/// IP, tunnels of every sort, and none.
const BARE: [u16; 8] = [512, 519, 768, 769, 776, 778, 823, 65_534];

/// Ethernet's numbers of IPv4 and IPv6.
const IP: [u16; 2] = [0x0800, 0x86dd];

/// Headers that packets of a link type begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// Packets as the interface has them.
    Plain(Framing),
    /// A cooked header before the packet, in place of its own.
    Cooked,
    /// As [`Link::Cooked`], with the interface.
    Cooked2,
}

/// A frame as the interface had it.
pub(super) struct Frame {
    pub(super) framing: Framing,
    pub(super) bytes: Vec<u8>,
    /// Length of the whole frame.
    pub(super) length: u64,
    pub(super) outbound: bool,
    /// Index of the interface, where the packet says it.
    pub(super) interface: Option<u32>,
}

/// What a cooked header says.
struct Cooked {
    protocol: u16,
    hardware: u16,
    kind: u8,
    /// The sender's address, as far as one of Ethernet has room.
    sender: [u8; 6],
    interface: Option<u32>,
}

impl Link {
    /// The link type, if it is known here.
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

    /// The frame behind a packet of the file, of which `captured` may be only the beginning.
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
            // Cut off within its header: nothing is known of it.
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

/// A number of two bytes at a place.
fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk::<2>()?))
}

fn sender(bytes: &[u8], at: usize) -> Option<[u8; 6]> {
    bytes.get(at..)?.first_chunk::<6>().copied()
}

/// Kind, hardware, length of the address, address, protocol.
fn cooked(bytes: &[u8]) -> Option<Cooked> {
    let kind = short(bytes, 0)?.to_be_bytes()[1];
    let (hardware, protocol) = (short(bytes, 2)?, short(bytes, 14)?);
    Some(Cooked { protocol, hardware, kind, sender: sender(bytes, 6)?, interface: None })
}

/// Protocol, two bytes of nothing, interface, hardware, kind, length of the address, address.
fn cooked_2(bytes: &[u8]) -> Option<Cooked> {
    let interface = u32::from_be_bytes(*bytes.get(4..)?.first_chunk::<4>()?);
    let (protocol, hardware) = (short(bytes, 0)?, short(bytes, 8)?);
    let (kind, sender) = (*bytes.get(10)?, sender(bytes, 12)?);
    Some(Cooked { protocol, hardware, kind, sender, interface: Some(interface) })
}

/// Name of a link type that is not known here, and how to capture without it.
pub(super) fn link_name(link: i32) -> (&'static str, &'static str) {
    match link {
        105 | 119 | 127 | 163 => ("wireless", ", not in monitor mode"),
        0 | 108 => ("loopback of BSD", ", not on the loopback"),
        _ => ("unknown here", ""),
    }
}
