//! Captures, one packet at a time: pcap and pcapng, of any byte order and resolution.

use std::fs::File;
use std::path::Path;
use std::rc::Rc;

use pcap_parser::pcapng::Block;
use pcap_parser::traits::{PcapNGPacketBlock as _, PcapReaderIterator};
use pcap_parser::{PcapBlockOwned, PcapError, create_reader};

use super::CaptureError;
use crate::datapath::Framing;

/// Bytes read at once.
const BUFFER: usize = 1 << 16;

/// The largest block of a file: a frame of 128 kB and what tools write beside it.
const MAX_BLOCK: usize = 1 << 24;

/// Link types (www.tcpdump.org/linktypes.html): Ethernet, and IP without a header before it, of either
/// version or of one.
const ETHERNET: i32 = 1;
const RAW: i32 = 101;
const RAW_V4: i32 = 228;
const RAW_V6: i32 = 229;
/// What BSD systems write for `RAW`.
const RAW_BSD: [i32; 2] = [12, 14];

/// Bits of pcap's link type that say something else.
const LINK_TYPE: i32 = 0xffff;

/// The option of a packet in pcapng that says which way it went.
const FLAGS: u16 = 2;
const DIRECTION: u8 = 3;
const OUTBOUND: u8 = 2;

/// Bit of pcapng's resolution: a power of two, not of ten.
const BINARY: u8 = 0x80;

const SECOND: u128 = 1_000_000_000;

/// One packet of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// Its number in the file, from 1, as other tools count.
    pub number: u64,
    /// When it came, in nanoseconds since 1970.
    pub nanos: u64,
    /// What it begins with.
    pub framing: Framing,
    /// What was captured of it.
    pub frame: Vec<u8>,
    /// How long it was, in bytes.
    pub length: u64,
    /// The interface that the capture names.
    pub interface: Option<Rc<str>>,
    /// Whether the capture says that it went out.
    pub outbound: bool,
}

impl Captured {
    /// Whether the capture has less of it than there was.
    pub fn is_cut(&self) -> bool {
        u64::try_from(self.frame.len()).is_ok_and(|captured| captured < self.length)
    }
}

/// An interface of a pcapng section.
#[derive(Clone, Debug)]
struct Interface {
    name: Option<Rc<str>>,
    framing: Framing,
    /// [`Interface::nanos`] of raw times.
    resolution: u8,
    /// Seconds to be added.
    offset: i64,
}

impl Interface {
    /// Nanoseconds since 1970; `None` where they do not fit.
    fn nanos(&self, raw: u64) -> Option<u64> {
        let exponent = u32::from(self.resolution & !BINARY);
        let raw = u128::from(raw);
        let nanos = if self.resolution & BINARY != 0 {
            raw.checked_mul(SECOND)?.checked_shr(exponent)?
        } else {
            raw.checked_mul(SECOND)?.checked_div(10u128.checked_pow(exponent)?)?
        };
        let offset = i128::from(self.offset).checked_mul(1_000_000_000)?;
        u64::try_from(i128::try_from(nanos).ok()?.checked_add(offset)?).ok()
    }
}

/// What a block of the file was.
enum Read {
    Packet(Captured),
    Nothing,
}

/// A capture file.
pub struct Capture {
    file: String,
    reader: Box<dyn PcapReaderIterator + Send>,
    /// Packets read.
    number: u64,
    /// Of pcap: nanoseconds in one unit of the fraction.
    unit: u64,
    /// Of pcap: what packets begin with.
    framing: Framing,
    /// Of pcapng: the interfaces of the section.
    interfaces: Vec<Interface>,
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Capture").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Capture {
    /// Opens a file.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or is no capture.
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        let file = path.display().to_string();
        let failed = |source| CaptureError::Read { file: file.clone(), source };
        let opened = File::open(path).map_err(failed)?;
        if opened.metadata().map_err(failed)?.is_dir() {
            return Err(failed(std::io::ErrorKind::IsADirectory.into()));
        }
        let reader = create_reader(BUFFER, opened)
            .map_err(|_not_recognised| CaptureError::NoCapture { file: file.clone() })?;
        let framing = Framing::Ethernet;
        Ok(Self { file, reader, number: 0, unit: 1000, framing, interfaces: Vec::new() })
    }

    /// The next packet, `None` after the last.
    ///
    /// # Errors
    ///
    /// When the file is broken there, or the packet is of no Ethernet.
    pub fn next_packet(&mut self) -> Result<Option<Captured>, CaptureError> {
        let mut room = 2 * BUFFER;
        // Bytes that were there when the last refill was asked for.
        let mut stuck = None;
        loop {
            let (length, block) = match self.reader.next() {
                Ok(found) => found,
                Err(PcapError::Eof) => return Ok(None),
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
                    // It does not grow to what it has already.
                    while !self.reader.grow(room) {
                        room = room.saturating_mul(2);
                        if room > MAX_BLOCK {
                            return Err(self.broken("a block of more than 16 MiB"));
                        }
                    }
                    if self.reader.refill().is_err() {
                        return Err(self.unreadable());
                    }
                    continue;
                }
                Err(PcapError::UnexpectedEof) => return self.ended(),
                Err(PcapError::ReadError) => return Err(self.unreadable()),
                Err(_malformed) => return Err(self.broken("a block that is malformed")),
            };
            let state = State {
                file: &self.file,
                number: self.number + 1,
                unit: &mut self.unit,
                framing: &mut self.framing,
                interfaces: &mut self.interfaces,
            };
            let read = state.read(block);
            self.reader.consume(length);
            if let Read::Packet(packet) = read? {
                self.number = packet.number;
                return Ok(Some(packet));
            }
        }
    }

    /// No byte is left to read; none may be left over.
    fn ended(&self) -> Result<Option<Captured>, CaptureError> {
        if self.reader.data().is_empty() {
            return Ok(None);
        }
        Err(CaptureError::CutOff { file: self.file.clone(), packet: self.number + 1 })
    }

    fn broken(&self, what: &'static str) -> CaptureError {
        CaptureError::Broken { file: self.file.clone(), packet: self.number + 1, what }
    }

    fn unreadable(&self) -> CaptureError {
        let source = std::io::Error::other("reading failed");
        CaptureError::Read { file: self.file.clone(), source }
    }
}

/// Everything of a [`Capture`] but its reader, which the block borrows.
struct State<'a> {
    file: &'a str,
    /// Of the next packet.
    number: u64,
    unit: &'a mut u64,
    framing: &'a mut Framing,
    interfaces: &'a mut Vec<Interface>,
}

impl State<'_> {
    fn read(self, block: PcapBlockOwned<'_>) -> Result<Read, CaptureError> {
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                *self.unit = if header.is_nanosecond_precision() { 1 } else { 1000 };
                *self.framing = self.framing_of(header.network.0 & LINK_TYPE)?;
                Ok(Read::Nothing)
            }
            PcapBlockOwned::Legacy(packet) => {
                let seconds = u64::from(packet.ts_sec) * 1_000_000_000;
                Ok(Read::Packet(Captured {
                    number: self.number,
                    nanos: seconds + u64::from(packet.ts_usec) * *self.unit,
                    framing: *self.framing,
                    frame: packet.data.to_vec(),
                    length: u64::from(packet.origlen.max(packet.caplen)),
                    interface: None,
                    outbound: false,
                }))
            }
            PcapBlockOwned::NG(block) => self.block(block),
        }
    }

    fn block(self, block: Block<'_>) -> Result<Read, CaptureError> {
        match block {
            Block::SectionHeader(_) => self.interfaces.clear(),
            Block::InterfaceDescription(interface) => {
                let framing = self.framing_of(interface.linktype.0)?;
                let name = interface.if_name().and_then(Result::ok).map(Rc::from);
                let (resolution, offset) = (interface.if_tsresol, interface.if_tsoffset);
                self.interfaces.push(Interface { name, framing, resolution, offset });
            }
            Block::EnhancedPacket(packet) => {
                let index = usize::try_from(packet.if_id).unwrap_or(usize::MAX);
                let interface = self.interfaces.get(index);
                let interface =
                    interface.ok_or_else(|| self.broken("it names no interface of the file"))?;
                let raw = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                let nanos = interface.nanos(raw);
                let nanos = nanos.ok_or_else(|| self.broken("its time is out of range"))?;
                let flags = packet.options.iter().find(|option| option.code.0 == FLAGS);
                let little = !packet.big_endian();
                let low = flags.and_then(|flags| {
                    let value = flags.value().first_chunk::<4>()?;
                    if little { value.first() } else { value.last() }.copied()
                });
                let frame = packet.packet_data();
                return Ok(Read::Packet(Captured {
                    number: self.number,
                    nanos,
                    framing: interface.framing,
                    frame: frame.to_vec(),
                    length: u64::from(packet.origlen.max(packet.caplen)),
                    interface: interface.name.clone(),
                    outbound: low.is_some_and(|low| low & DIRECTION == OUTBOUND),
                }));
            }
            Block::SimplePacket(_) => {
                return Err(self.broken("it has no time (a simple packet block)"));
            }
            // Names, statistics, secrets and what is not known: no packets.
            _ => {}
        }
        Ok(Read::Nothing)
    }

    fn broken(&self, what: &'static str) -> CaptureError {
        CaptureError::Broken { file: self.file.to_owned(), packet: self.number, what }
    }

    fn framing_of(&self, number: i32) -> Result<Framing, CaptureError> {
        let (name, remedy) = match number {
            ETHERNET => return Ok(Framing::Ethernet),
            RAW | RAW_V4 | RAW_V6 => return Ok(Framing::Layer3),
            other if RAW_BSD.contains(&other) => return Ok(Framing::Layer3),
            113 | 276 => ("Linux cooked", ", not on `any`"),
            105 | 119 | 127 | 163 => ("wireless", ", not in monitor mode"),
            0 | 108 => ("loopback of BSD", ", not on the loopback"),
            _ => ("unknown here", ""),
        };
        let file = self.file.to_owned();
        Err(CaptureError::LinkType { file, number, name, remedy })
    }
}
