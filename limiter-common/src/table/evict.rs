//! How the entry of a key leaves: see [`crate::room`].
//!
//! The bucket is claimed as for a conversion ([`super::ready`]): its words get another scale bit,
//! so no charge that was under way can be stored. If nothing is used of any of its limits then, it
//! is removed; a packet that waits for the conversion looks the key up again. Otherwise the claim
//! is given up, and the words go on.

use super::code::{NO_RECORD, PLACES};
use super::limit::limit_fill;
use super::ready::freeze;
use super::scratch::Scratch;
use crate::bucket::{Resolved, Slot};
use crate::cell::Cell as _;
use crate::room::Leave;
use crate::rounds::Rounds;
use crate::step::step;
use crate::time::Ticks;
use crate::world::{Keyed as _, Tables};

/// For how long a bucket stays that a packet has found: 1 ms. It may be about to charge it, and a
/// hash map uses the element of an entry that left again at once. So is no bucket taken from a
/// packet by its own search for room in another table.
const REST: Ticks = Ticks::from_nanos(1_000_000);

/// Makes a bucket leave, if it may; the caller removes it then. Exactly one CPU is told so.
#[inline(always)]
pub fn retire<T: Tables>(maps: &T, scratch: &Scratch, bucket: &T::Keyed, leave: &Leave) -> bool {
    let seen = Resolved::from_raw(bucket.resolved().load());
    let used = Ticks::new(bucket.used());
    // Another CPU's clock may be ahead.
    let used = if used > leave.now { leave.now } else { used };
    if seen.is_converting()
        || leave.now.since(used) < REST
        || !leave.allows(used, bucket.packets())
        || !is_drained(maps, scratch, bucket, seen)
    {
        return false;
    }
    let scale = !seen.scale();
    let claim = Resolved::new(seen.generation(), seen.slot(), NO_RECORD, scale);
    if !bucket.resolved().compare_exchange(seen.raw(), claim.raw()) {
        return false;
    }
    step!(freeze(scratch; bucket, scale));
    if is_drained(maps, scratch, bucket, seen) {
        return true;
    }
    let settled = Resolved::new(seen.generation(), seen.slot(), Slot::NONE, scale);
    bucket.resolved().compare_exchange(claim.raw(), settled.raw());
    false
}

/// Whether nothing is used of any limit of the bucket. Nobody can say that of a bucket whose rule
/// is not known any more: it was not used for as many rule changes as there are slots, and may
/// leave.
#[inline(always)]
fn is_drained<T: Tables>(
    maps: &T,
    scratch: &Scratch,
    bucket: &T::Keyed,
    resolved: Resolved,
) -> bool {
    let count = match maps.record(resolved.slot()) {
        Some(record)
            if resolved.generation().knows(record.since)
                && record.budget == 0
                && !record.is_unlimited() =>
        {
            u32::from(record.count)
        }
        _ => 0,
    };
    let mut used = 0;
    let mut rounds = Rounds::new();
    while let Some(place) = rounds.next(PLACES) {
        if place >= count {
            break;
        }
        used |= step!(limit_fill(maps, scratch; bucket, resolved.slot(), place, scratch.now()));
    }
    used == 0
}
