//! Opens a capture: finds its bytes, and checks whether they are a capture at all.

use std::fs::File;
use std::io::{self, Cursor, IsTerminal as _, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;
use pcap_parser::create_reader;
use pcap_parser::traits::PcapReaderIterator;

use super::CaptureError;

/// Bytes per read.
pub(super) const BUFFER: usize = 1 << 16;

/// The conventional name of standard input.
const STANDARD_INPUT: &str = "-";

/// Length of a pcap header. A section header of pcapng is longer.
const HEADER: usize = 24;

/// The first bytes of pcap files: with micro- and nanoseconds, in either byte order, and with
/// extended packet headers.
const PCAP: [[u8; 4]; 5] = [
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0x4d, 0x3c, 0xb2, 0xa1],
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0xa1, 0xb2, 0x3c, 0x4d],
    [0x34, 0xcd, 0xb2, 0xa1],
];

/// The first bytes of a pcapng section, the same in either byte order.
const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// The bytes of a section that show its byte order, here little-endian.
const ORDER: [u8; 4] = [0x4d, 0x3c, 0x2b, 0x1a];

/// First bytes of compressed files, the format's name, and the program that unpacks it to standard
/// output.
const COMPRESSED: [(&[u8], &str, &str); 4] = [
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstd", "zstd -dc"),
    (&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz", "xz -dc"),
    (b"BZh", "bzip2", "bzip2 -dc"),
    (&[0x04, 0x22, 0x4d, 0x18], "lz4", "lz4 -dc"),
];

/// The first bytes of a gzip file, which limiter unpacks itself.
const GZIP: [u8; 2] = [0x1f, 0x8b];

pub(super) type Blocks = Box<dyn PcapReaderIterator + Send>;

/// How much of a file was read.
#[derive(Clone, Debug, Default)]
pub(super) struct Extent {
    /// Bytes read so far.
    read: Arc<AtomicU64>,
    /// Bytes of the file; `None` for a pipe.
    size: Option<u64>,
}

impl Extent {
    /// Percentage of the file that was read; `None` for a pipe.
    pub(super) fn percent(&self) -> Option<u64> {
        let size = self.size.filter(|size| *size > 0)?;
        Some((self.read.load(Ordering::Relaxed).saturating_mul(100) / size).min(100))
    }
}

/// A reader that counts its bytes.
struct Counting<R> {
    from: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        self.read.fetch_add(u64::try_from(read).unwrap_or(0), Ordering::Relaxed);
        Ok(read)
    }
}

/// Whether and how a compressed capture ended early.
#[derive(Clone, Debug, Default)]
pub(super) struct Unpacked(Arc<AtomicU8>);

/// Values of [`Unpacked`].
const CUT_OFF: u8 = 1;
const DAMAGED: u8 = 2;

impl Unpacked {
    /// True if the file ends within its compressed bytes.
    pub(super) fn is_cut_off(&self) -> bool {
        self.0.load(Ordering::Relaxed) == CUT_OFF
    }

    /// True if the compressed bytes are invalid.
    pub(super) fn is_damaged(&self) -> bool {
        self.0.load(Ordering::Relaxed) == DAMAGED
    }
}

/// A reader of compressed bytes. If they cannot be unpacked, it notes that and ends.
struct Unpacking<R> {
    from: MultiGzDecoder<R>,
    ended: Unpacked,
}

impl<R: Read> Read for Unpacking<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.ended.is_cut_off() || self.ended.is_damaged() {
            return Ok(0);
        }
        self.from.read(buffer).or_else(|error| {
            let how = match error.kind() {
                io::ErrorKind::UnexpectedEof => CUT_OFF,
                io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => DAMAGED,
                _ => return Err(error),
            };
            self.ended.0.store(how, Ordering::Relaxed);
            Ok(0)
        })
    }
}

/// An open capture: the file's name for messages, and its content.
pub(super) struct Opened {
    pub(super) file: String,
    pub(super) blocks: Blocks,
    pub(super) extent: Extent,
    pub(super) unpacked: Unpacked,
    /// For pcap: reads a number in the byte order of the file.
    pub(super) order: Option<Order>,
}

/// Converts a number in the file's byte order.
pub(super) type Order = fn([u8; 4]) -> u32;

/// Opens a file, or standard input for `-`.
pub(super) fn open(path: &Path) -> Result<Opened, CaptureError> {
    if path.as_os_str() == STANDARD_INPUT {
        let file = "standard input".to_owned();
        let input = io::stdin();
        if input.is_terminal() {
            return Err(CaptureError::Terminal);
        }
        return begin(file, input, None);
    }
    let file = path.display().to_string();
    let failed = |source| CaptureError::Read { file: file.clone(), source };
    let opened = File::open(path).map_err(failed)?;
    let metadata = opened.metadata().map_err(failed)?;
    if metadata.is_dir() {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    begin(file, opened, metadata.is_file().then_some(metadata.len()))
}

/// Reads only the header, because the first packet of a pipe may take long.
fn begin(
    file: String,
    input: impl Read + Send + 'static,
    size: Option<u64>,
) -> Result<Opened, CaptureError> {
    let extent = Extent { size, ..Extent::default() };
    let mut input: Box<dyn Read + Send> =
        Box::new(Counting { from: input, read: Arc::clone(&extent.read) });
    let unpacked = Unpacked::default();
    let mut head = Vec::with_capacity(HEADER);
    let mut read = read_up_to(&mut input, HEADER, &mut head);
    if read.is_ok() && head.starts_with(&GZIP) {
        let from = MultiGzDecoder::new(Cursor::new(std::mem::take(&mut head)).chain(input));
        input = Box::new(Unpacking { from, ended: unpacked.clone() });
        read = read_up_to(&mut input, HEADER, &mut head);
        if unpacked.is_damaged() {
            return Err(CaptureError::Damaged { file });
        }
        if head.is_empty() && unpacked.is_cut_off() {
            return Err(CaptureError::CutHeader { file });
        }
    }
    if let Err(source) = read {
        return Err(CaptureError::Read { file, source });
    }
    if head.is_empty() {
        return Err(CaptureError::Empty { file });
    }
    let compressed = COMPRESSED.iter().find(|(magic, _, _)| head.starts_with(magic));
    if let Some((_, name, unpack)) = compressed {
        return Err(CaptureError::Compressed { file, name, unpack });
    }
    let order: Option<Order> = match head.first() {
        _ if head.starts_with(&SECTION) => None,
        Some(0xa1) => Some(u32::from_be_bytes),
        _ => Some(u32::from_le_bytes),
    };
    if order.is_none() {
        let Some(length) = section_length(&head) else {
            return Err(CaptureError::CutHeader { file });
        };
        if !(HEADER + 4..=BUFFER).contains(&length) {
            return Err(CaptureError::NoCapture { file });
        }
        if let Err(source) = read_up_to(&mut input, length, &mut head) {
            return Err(CaptureError::Read { file, source });
        }
        if head.len() < length {
            return Err(CaptureError::CutHeader { file });
        }
    } else if !PCAP.iter().any(|magic| head.starts_with(magic)) {
        return Err(CaptureError::NoCapture { file });
    } else if head.len() < HEADER {
        return Err(CaptureError::CutHeader { file });
    }
    match create_reader(BUFFER, Cursor::new(head).chain(input)) {
        Ok(blocks) => Ok(Opened { file, blocks, extent, unpacked, order }),
        Err(_not_recognised) => Err(CaptureError::NoCapture { file }),
    }
}

/// The length of a section header; `None` if its beginning is incomplete.
fn section_length(head: &[u8]) -> Option<usize> {
    let length = *head.get(4..)?.first_chunk::<4>()?;
    let order = head.get(8..12)?;
    let length =
        if order == ORDER { u32::from_le_bytes(length) } else { u32::from_be_bytes(length) };
    usize::try_from(length).ok()
}

/// Reads until there are `length` bytes, or the input ends.
fn read_up_to(input: &mut impl Read, length: usize, head: &mut Vec<u8>) -> io::Result<()> {
    let missing = u64::try_from(length.saturating_sub(head.len())).unwrap_or(u64::MAX);
    input.take(missing).read_to_end(head).map(drop)
}
