//! Captures, one packet at a time: pcap and pcapng, of any byte order and resolution.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use limiter_common::source::Source;
use limiter_decision::packet::{self, Layer3, Packet};
use limiter_model::Framing;
use pcap_parser::pcapng::Block;
use pcap_parser::traits::PcapNGPacketBlock as _;
use pcap_parser::{PcapBlockOwned, PcapError};

use super::interface::Interface;
use super::link::{Frame, Link, link_name};
use super::opening::{self, BUFFER, Blocks, Extent, Opened, Unpacked};
use super::twice::Twice;
use super::{CaptureError, obsolete};

/// The largest block of a file: a frame of 128 kB and what tools write beside it.
const MAX_BLOCK: usize = 1 << 24;
const TOO_LARGE: &str = "a block of more than 16 MiB";

/// The most bytes of a packet that libpcap writes: its `MAXIMUM_SNAPLEN`.
const MAX_CAPTURED: usize = 262_144;

/// The option of a pcapng packet with its direction.
pub(super) const FLAGS: u16 = 2;
const DIRECTION: u8 = 3;
const INBOUND: u8 = 1;
const OUTBOUND: u8 = 2;

const SECOND: u64 = 1_000_000_000;

/// Error for a fraction of a second or more: some programs write nanoseconds under a header that
/// says microseconds.
const BEYOND: &str = "its fraction of a second is a second or more, as where times are in \
     nanoseconds and the head of the file says microseconds";

/// Error for an invalid packet header.
const NO_LENGTH: &str = "more bytes of it than programs write, as where the file is damaged, or of \
     another kind of pcap than its head says";

/// The bits of pcap's link-type field that contain the link type.
const LINK_TYPE: i32 = 0xffff;

/// The option of a pcapng packet with its number, which is the same wherever the packet is seen
/// again.
const PACKET_ID: u16 = 5;

/// One packet of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// Number of the packet in the file, from 1, as other tools count.
    pub number: u64,
    /// Time of the packet, in nanoseconds since 1970.
    pub nanos: u64,
    /// Header at the beginning of the packet.
    pub framing: Framing,
    /// Captured bytes of the packet.
    pub frame: Vec<u8>,
    /// Length of the packet on the wire, in bytes.
    pub length: u64,
    /// The interface that the capture names.
    pub interface: Option<Rc<str>>,
    /// The index of the interface, if the packet itself contains it.
    pub index: Option<u32>,
    /// True if the capture marks the packet as outgoing.
    pub outbound: bool,
    /// True if the capture marks the packet as incoming.
    pub inbound: bool,
    /// True if the packet appears in the capture before, seen at another point of its way.
    pub again: bool,
}

impl Captured {
    /// True if the capture contains only a part of the packet.
    pub fn is_cut(&self) -> bool {
        u64::try_from(self.frame.len()).is_ok_and(|captured| captured < self.length)
    }

    /// The source that the packet is charged to; `None` if it is exempt.
    pub fn source(&self) -> Option<Source> {
        let frame = self.frame.as_slice();
        let parsed = match self.framing {
            Framing::Ethernet => packet::parse(&frame),
            Framing::Layer3 => packet::parse(&Layer3(frame)),
        };
        match parsed {
            Packet::From(source) => Some(source),
            Packet::Exempt(_) => None,
        }
    }
}

/// A pcapng packet, from either kind of block that has a time.
pub(super) struct Framed<'a> {
    pub(super) interface: usize,
    /// Time in units of the interface.
    pub(super) time: u64,
    pub(super) frame: &'a [u8],
    /// Length of the packet, in bytes.
    pub(super) length: u32,
    /// The lowest byte of [`FLAGS`].
    pub(super) flags: Option<u8>,
    /// [`PACKET_ID`].
    pub(super) id: Option<u64>,
}

/// Content of a block of the file.
enum Read {
    Packet(Captured),
    /// A packet of this unknown link type, in a file with other interfaces that can be read.
    LeftOut(i32),
    Nothing,
}

/// A capture file.
pub struct Capture {
    file: String,
    reader: Blocks,
    extent: Extent,
    unpacked: Unpacked,
    /// For pcap: reads a number in the byte order of the file.
    order: Option<opening::Order>,
    number: u64,
    /// For pcap: nanoseconds per unit of the fraction.
    unit: u64,
    /// For pcap: headers at the beginning of packets.
    link: Link,
    /// For pcapng: the interfaces of the section.
    interfaces: Vec<Interface>,
    /// For pcapng: the packets that may be seen again.
    twice: Twice,
    /// Packets that were left out, by link type.
    left_out: BTreeMap<i32, u64>,
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Capture").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Capture {
    /// Opens a file, or standard input for `-`.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is not a capture.
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        let Opened { file, blocks: reader, extent, unpacked, order } = opening::open(path)?;
        Ok(Self {
            file,
            reader,
            extent,
            unpacked,
            order,
            number: 0,
            unit: 1000,
            link: Link::Plain(Framing::Ethernet),
            interfaces: Vec::new(),
            twice: Twice::default(),
            left_out: BTreeMap::new(),
        })
    }

    /// Percentage of the file that was read; `None` for a pipe.
    pub fn percent(&self) -> Option<u64> {
        self.extent.percent()
    }

    /// Packets so far from interfaces of unknown link types, if the file also has a known one: the
    /// type, its name, and their number.
    pub fn left_out(&self) -> impl Iterator<Item = (i32, &'static str, u64)> {
        self.left_out.iter().map(|(link, packets)| (*link, link_name(*link).0, *packets))
    }

    /// The next packet; `None` after the last.
    ///
    /// # Errors
    ///
    /// If the file is broken or cut off there, or its link type is unknown.
    pub fn next_packet(&mut self) -> Result<Option<Captured>, CaptureError> {
        let mut room = 2 * BUFFER;
        // Number of available bytes at the last request for a refill.
        let mut stuck = None;
        loop {
            let (length, block) = match self.reader.next() {
                Ok(found) => found,
                Err(PcapError::Eof | PcapError::UnexpectedEof) => return self.ended(),
                Err(PcapError::Incomplete(_)) => {
                    let there = self.reader.data().len();
                    if stuck == Some(there) && self.reader.reader_exhausted() {
                        return self.ended();
                    }
                    stuck = Some(there);
                    if self.reader.refill().is_err() {
                        return Err(self.unreadable());
                    }
                    continue;
                }
                Err(PcapError::BufferTooSmall) => {
                    // One step may grow the buffer only to the size that it already has.
                    while !self.reader.grow(room) {
                        room = room.saturating_mul(2);
                        if room > MAX_BLOCK {
                            return Err(self.broken(TOO_LARGE));
                        }
                    }
                    if self.reader.refill().is_err() {
                        return Err(self.unreadable());
                    }
                    continue;
                }
                Err(PcapError::ReadError) => return Err(self.unreadable()),
                Err(_malformed) => return Err(self.broken("a block that is malformed")),
            };
            let reader = BlockReader {
                file: &self.file,
                number: self.number + 1,
                unit: &mut self.unit,
                link: &mut self.link,
                interfaces: &mut self.interfaces,
                twice: &mut self.twice,
            };
            let read = reader.read(block);
            self.reader.consume(length);
            match read? {
                Read::Packet(packet) => {
                    self.number = packet.number;
                    return Ok(Some(packet));
                }
                Read::LeftOut(link) => {
                    self.number += 1;
                    *self.left_out.entry(link).or_default() += 1;
                }
                Read::Nothing => {}
            }
        }
    }

    /// Checks the end of the input: no bytes may be left over.
    fn ended(&self) -> Result<Option<Captured>, CaptureError> {
        if self.unpacked.is_damaged() {
            return Err(CaptureError::Damaged { file: self.file.clone() });
        }
        if self.reader.data().is_empty() && !self.unpacked.is_cut_off() {
            return Ok(None);
        }
        // If the file was cut off, the remaining bytes begin with a plausible length.
        let word = |at: usize| self.reader.data().get(at..).and_then(|rest| rest.first_chunk());
        // Each section of pcapng has its own byte order.
        let either = |word: &[u8; 4]| u32::from_le_bytes(*word).min(u32::from_be_bytes(*word));
        let (length, most, broken, what) = match self.order {
            Some(order) => (word(8).map(|word| order(*word)), MAX_CAPTURED, NO_LENGTH, "packet"),
            None => (word(4).map(either), MAX_BLOCK, TOO_LARGE, "a block at or before packet"),
        };
        if length.is_some_and(|length| usize::try_from(length).is_ok_and(|length| length > most)) {
            return Err(self.broken(broken));
        }
        Err(CaptureError::CutOff { file: self.file.clone(), what, packet: self.number + 1 })
    }

    fn broken(&self, what: &'static str) -> CaptureError {
        CaptureError::Broken { file: self.file.clone(), packet: self.number + 1, what }
    }

    fn unreadable(&self) -> CaptureError {
        let source = std::io::Error::other("reading failed");
        CaptureError::Read { file: self.file.clone(), source }
    }
}

/// Everything in a [`Capture`] except its reader, which the block borrows.
struct BlockReader<'a> {
    file: &'a str,
    number: u64,
    unit: &'a mut u64,
    link: &'a mut Link,
    interfaces: &'a mut Vec<Interface>,
    twice: &'a mut Twice,
}

impl BlockReader<'_> {
    fn read(self, block: PcapBlockOwned<'_>) -> Result<Read, CaptureError> {
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                *self.unit = if header.is_nanosecond_precision() { 1 } else { 1000 };
                let link = header.network.0 & LINK_TYPE;
                *self.link = Link::of(link).ok_or_else(|| self.unknown(link))?;
                Ok(Read::Nothing)
            }
            PcapBlockOwned::Legacy(packet) => {
                if u64::from(packet.ts_usec) * *self.unit >= SECOND {
                    return Err(self.broken(BEYOND));
                }
                let seconds = u64::from(packet.ts_sec) * SECOND;
                let nanos = seconds + u64::from(packet.ts_usec) * *self.unit;
                let frame = self.link.frame(packet.data, packet.origlen.max(packet.caplen));
                Ok(Read::Packet(captured(self.number, nanos, frame)))
            }
            PcapBlockOwned::NG(block) => self.block(block),
        }
    }

    fn block(self, block: Block<'_>) -> Result<Read, CaptureError> {
        match block {
            Block::SectionHeader(_) => {
                self.interfaces.clear();
                self.twice.clear();
            }
            Block::InterfaceDescription(interface) => {
                self.interfaces.push(Interface::described(&interface));
            }
            Block::EnhancedPacket(packet) => {
                let option = |code| packet.options.iter().find(|option| option.code.0 == code);
                let flags = option(FLAGS);
                let flags = flags.and_then(|flags| lowest(flags.value(), packet.big_endian()));
                let id = option(PACKET_ID);
                let id = id.and_then(|id| id.value().first_chunk().copied());
                return self.packet(&Framed {
                    interface: usize::try_from(packet.if_id).unwrap_or(usize::MAX),
                    time: u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low),
                    frame: packet.packet_data(),
                    length: packet.origlen.max(packet.caplen),
                    flags,
                    // Only compared with numbers of the same file, so the byte order does not
                    // matter.
                    id: id.map(u64::from_le_bytes),
                });
            }
            Block::Unknown(block) if obsolete::is_packet(&block) => {
                let packet = obsolete::packet(&block);
                let packet = packet.ok_or_else(|| self.broken("a block that is malformed"))?;
                return self.packet(&packet);
            }
            Block::SimplePacket(_) => {
                return Err(self.broken("it has no time (a simple packet block)"));
            }
            // Names, statistics, secrets and unknown blocks contain no packets.
            _ => {}
        }
        Ok(Read::Nothing)
    }

    fn packet(self, packet: &Framed<'_>) -> Result<Read, CaptureError> {
        let interface = self.interfaces.get(packet.interface);
        let interface =
            interface.ok_or_else(|| self.broken("it names no interface of the file"))?;
        let link = match interface.link {
            Ok(link) => link,
            Err(link) if self.interfaces.iter().any(|other| other.link.is_ok()) => {
                return Ok(Read::LeftOut(link));
            }
            Err(link) => return Err(self.unknown(link)),
        };
        let nanos = interface.nanos(packet.time);
        let nanos = nanos.ok_or_else(|| self.broken("its time is out of range"))?;
        let again = match packet.id {
            Some(id) => self.twice.is_again(id, packet.interface),
            // Without numbers: a program that writes both points has every packet at its entry.
            None => interface.is_exit && self.interfaces.iter().any(|other| other.is_entry),
        };
        let says = |way| packet.flags.is_some_and(|low| low & DIRECTION == way);
        let read = captured(self.number, nanos, link.frame(packet.frame, packet.length));
        Ok(Read::Packet(Captured {
            interface: interface.name.clone(),
            outbound: says(OUTBOUND) || read.outbound,
            inbound: says(INBOUND),
            again,
            ..read
        }))
    }

    fn broken(&self, what: &'static str) -> CaptureError {
        CaptureError::Broken { file: self.file.to_owned(), packet: self.number, what }
    }

    fn unknown(&self, number: i32) -> CaptureError {
        let (name, remedy) = link_name(number);
        CaptureError::LinkType { file: self.file.to_owned(), number, name, remedy }
    }
}

/// A packet with only its number, time and frame.
fn captured(number: u64, nanos: u64, frame: Frame) -> Captured {
    let Frame { framing, bytes, length, outbound, interface } = frame;
    let (interface, index) = (None, interface);
    Captured {
        number,
        nanos,
        framing,
        frame: bytes,
        length,
        interface,
        index,
        outbound,
        inbound: false,
        again: false,
    }
}

/// The lowest byte of a four-byte number.
pub(super) fn lowest(value: &[u8], big_endian: bool) -> Option<u8> {
    let value = value.first_chunk::<4>()?;
    if big_endian { value.last() } else { value.first() }.copied()
}
