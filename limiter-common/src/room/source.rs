//! Entries of the source table: how a frame names one, and how it leaves.
//!
//! An entry leaves in two steps. First its word is exchanged for [`GONE`]: from then on no charge
//! can be stored in it. Then it is removed from the map. A packet of that source which meets the
//! word in between is judged as one without an entry.

use super::Leave;
use crate::bucket::Word;
use crate::cell::{Cell as _, Meter};
use crate::source::Source;
use crate::time::{MAX_TICKS, Ticks};
use crate::wire::Lane;

/// The word of a bucket that is leaving. No charge makes it: it would be the last instant that the
/// clock has.
pub const GONE: Word = Word::new(Ticks::new(MAX_TICKS), true);

/// Whether a bucket is leaving.
#[inline(always)]
pub const fn is_gone(word: Word) -> bool {
    word.raw() == GONE.raw()
}

/// So that no IPv6 prefix that is in use names itself [`super::EMPTY`] or [`super::BUSY`]. The two
/// that would are in `::/8`, which the IETF keeps reserved (RFC 4291): they get no entry.
const V6_NAME: u64 = u64::from_be_bytes([0x00, 0xf1, 0x11, 0x17, 0xe2, 0, 0, 0]);

const V4_NAME: u64 = 1 << 32;

/// The state of a frame that has this source; `None` for the two that can have none.
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

/// The source of a frame with this state.
#[inline(always)]
pub const fn named(lane: Lane, state: u64) -> Source {
    match lane {
        Lane::V4 => {
            let [.., a, b, c, d] = state.to_be_bytes();
            Source::V4([a, b, c, d])
        }
        Lane::V6 | Lane::Keyed => Source::V6((state ^ V6_NAME).to_be_bytes()),
    }
}

/// The table of a source.
#[inline(always)]
pub const fn lane(source: &Source) -> Lane {
    match source {
        Source::V4(_) => Lane::V4,
        Source::V6(_) => Lane::V6,
    }
}

/// Makes a bucket leave, if it may; the caller removes it then. `packets` is what it has counted.
#[inline(always)]
pub fn retire(meter: &impl Meter, packets: u64, leave: &Leave) -> bool {
    let word = Word::from_raw(meter.word().load());
    // Drained under the limit that it was charged under. Of a larger one since then not all is
    // available to it yet: a source that left the table begins with a full bucket, as a new one
    // (docs/algorithms.md).
    !is_gone(word)
        && leave.allows(word.tat(), packets)
        && meter.word().compare_exchange(word.raw(), GONE.raw())
}
