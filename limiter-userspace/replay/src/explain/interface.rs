//! Interfaces of a pcapng section.

use std::rc::Rc;

use pcap_parser::pcapng::InterfaceDescriptionBlock;

use super::link::Link;

/// The option of an interface in pcapng with the seconds to be added to its times.
const OFFSET: u16 = 14;

/// Bit of pcapng's resolution: a power of two, not of ten.
const BINARY: u8 = 0x80;

const SECOND: u128 = 1_000_000_000;

/// Ends of the names that xdpdump gives an interface: packets before a program, and behind it.
const ENTRY: &str = "@fentry";
const EXIT: &str = "@fexit";

/// An interface of a pcapng section.
#[derive(Clone, Debug)]
pub(super) struct Interface {
    /// The name as the kernel has it.
    pub(super) name: Option<Rc<str>>,
    /// Headers that packets begin with, or the number of the link type if that is not known.
    pub(super) link: Result<Link, i32>,
    /// True if its packets are those behind an XDP program.
    pub(super) is_exit: bool,
    /// True if its packets are those before an XDP program.
    pub(super) is_entry: bool,
    /// [`Interface::nanos`] of raw times.
    resolution: u8,
    /// Seconds to be added.
    offset: i64,
}

impl Interface {
    /// An interface as a block of pcapng has it.
    pub(super) fn described(interface: &InterfaceDescriptionBlock<'_>) -> Self {
        let reported = interface.if_name().and_then(Result::ok);
        let link = interface.linktype.0;
        let offset = interface.options.iter().find(|option| option.code.0 == OFFSET);
        // The reader takes it as little-endian in every file.
        let offset = offset.and_then(|offset| {
            let value = *offset.value().first_chunk::<8>()?;
            let big_endian = interface.block_type != pcap_parser::pcapng::IDB_MAGIC;
            Some(if big_endian { i64::from_be_bytes(value) } else { i64::from_le_bytes(value) })
        });
        Self {
            name: reported.map(|name| Rc::from(kernel_name(name))),
            link: Link::of(link).ok_or(link),
            is_exit: reported.is_some_and(|name| name.ends_with(EXIT)),
            is_entry: reported.is_some_and(|name| name.ends_with(ENTRY)),
            resolution: interface.if_tsresol,
            offset: offset.unwrap_or(0),
        }
    }

    /// Nanoseconds since 1970; `None` where they do not fit.
    pub(super) fn nanos(&self, raw: u64) -> Option<u64> {
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

/// `eth0` of xdpdump's `eth0:program()@fentry` and `eth0@fentry`; any other name as it is.
fn kernel_name(reported: &str) -> &str {
    let Some(reported) = reported.strip_suffix(ENTRY).or_else(|| reported.strip_suffix(EXIT))
    else {
        return reported;
    };
    match reported.strip_suffix("()").and_then(|of| of.rsplit_once(':')) {
        Some((name, _program)) => name,
        None => reported,
    }
}
