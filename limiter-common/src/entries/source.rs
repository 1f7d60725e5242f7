//! The names of sources in ring slots and in entries of lines.

use crate::source::Source;
use crate::wire::EntryKind;

/// So that no IPv6 prefix that is in use names itself [`super::EMPTY`] or [`super::BUSY`]. The two
/// that would are in `::/8`, which the IETF keeps reserved (RFC 4291): they get no entry.
const V6_NAME: u64 = u64::from_be_bytes([0x00, 0xf1, 0x11, 0x17, 0xe2, 0, 0, 0]);

const V4_NAME: u64 = 1 << 32;

/// The state of a ring slot that has this source; `None` for the two that can have none.
#[inline(always)]
pub const fn name(source: &Source) -> Option<u64> {
    match source {
        Source::V4(address) => Some(V4_NAME | u32::from_be_bytes(*address) as u64),
        Source::V6(prefix) => match u64::from_be_bytes(*prefix) ^ V6_NAME {
            0 | 1 => None,
            name => Some(name),
        },
    }
}

/// The source of a ring slot with this state.
#[inline(always)]
pub const fn named(kind: EntryKind, state: u64) -> Source {
    match kind {
        EntryKind::V4 => {
            let [.., a, b, c, d] = state.to_be_bytes();
            Source::V4([a, b, c, d])
        }
        EntryKind::V6 | EntryKind::Keyed => Source::V6((state ^ V6_NAME).to_be_bytes()),
    }
}

/// The table of a source.
#[inline(always)]
pub const fn kind(source: &Source) -> EntryKind {
    match source {
        Source::V4(_) => EntryKind::V4,
        Source::V6(_) => EntryKind::V6,
    }
}
