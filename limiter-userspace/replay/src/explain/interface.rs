//! Interfaces of a pcapng section.

use std::rc::Rc;

use pcap_parser::pcapng::InterfaceDescriptionBlock;

use super::link::Link;

/// The option of a pcapng interface with the seconds to add to its times.
const OFFSET: u16 = 14;

/// Bit of pcapng's resolution: set for a power of two instead of ten.
const BINARY: u8 = 0x80;

const SECOND: u128 = 1_000_000_000;

/// Suffixes of the interface names that xdpdump writes: packets before and after a program.
const ENTRY: &str = "@fentry";
const EXIT: &str = "@fexit";

/// An interface of a pcapng section.
#[derive(Clone, Debug)]
pub(super) struct Interface {
    /// The name in the kernel.
    pub(super) name: Option<Rc<str>>,
    /// Headers at the beginning of packets, or the number of an unknown link type.
    pub(super) link: Result<Link, i32>,
    /// True if its packets were captured after an XDP program.
    pub(super) is_exit: bool,
    /// True if its packets were captured before an XDP program.
    pub(super) is_entry: bool,
    /// Resolution of raw times, for [`Interface::nanos`].
    resolution: u8,
    /// Seconds to add to times.
    offset: i64,
}

impl Interface {
    pub(super) fn described(interface: &InterfaceDescriptionBlock<'_>) -> Self {
        let reported = interface.if_name().and_then(Result::ok);
        let link = interface.linktype.0;
        let offset = interface.options.iter().find(|option| option.code.0 == OFFSET);
        // The reader takes this number as little-endian in every file.
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

    /// Converts a raw time to nanoseconds since 1970; `None` if it does not fit.
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

/// `eth0` from xdpdump's `eth0:program()@fentry` and `eth0@fentry`; any other name unchanged.
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
