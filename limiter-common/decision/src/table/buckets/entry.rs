//! Inserts the entry of a key, and evicts another one for it: see [`crate::entries`].
//!
//! The bucket to be evicted is claimed as for a conversion ([`super::refresh`]): its words get the
//! other scale bit, so that no pending charge can be stored. If all of its limits are then unused,
//! it is removed; a packet that waits for the conversion looks the key up again. Otherwise the
//! claim is given up, and the words stay in use.

use limiter_common::bucket::{Resolved, Slot};
use limiter_common::bucket_key::{BUSY, EMPTY};
use limiter_common::time::Ticks;
use limiter_common::wire::EntryKind;

use crate::call::call;
use crate::cell::Cell as _;
use crate::entries::admission::{Admittance, admit, full};
use crate::entries::ring::{self, Claim, PROBES};
use crate::entries::{EntryTableWords as _, EvictionPolicy};
use crate::maps::{Keyed, Maps};
use crate::outcome::Insert;
use crate::rounds::{MAX_TRIES, Rounds};
use crate::table::keys::key_cell::KeyCell;
use crate::table::limits::limit::limit_fill;
use crate::table::result::{NO_RECORD, PLACES, WORD_COUNT};
use crate::table::scratch::Scratch;

/// Makes the bucket of a table's key, if there is none and there is space.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn insert<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    (table, key): (u32, &KeyCell),
    resolved: Resolved,
) -> Insert {
    let name = name(maps, key);
    if !matches!(call!(admit(maps; EntryKind::Keyed, name, scratch.now())), Admittance::Granted) {
        return Insert::Refused;
    }
    let Some(Claim { index, before }) = reserve(maps, scratch) else {
        return Insert::Refused;
    };
    call!(make_keyed(maps, scratch; table, resolved, index, before))
}

/// Makes the bucket of a table's key with this word, and assigns it the ring slot `index`, whose
/// state was `before`. Frees the slot if the bucket was not made.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn make_keyed<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    table: u32,
    resolved: Resolved,
    index: u32,
    before: u64,
) -> Insert {
    let Some(key) = scratch.key(scratch.unknown(table)) else {
        return Insert::Refused;
    };
    let made = maps.insert_keyed(key, &scratch.made, resolved.raw());
    if matches!(made, Insert::Made) {
        maps.set_ring_key(index, key);
    }
    // The new state is a number that the slot has not had, so a CPU that saw the previous key does
    // not remove this one.
    ring::complete(maps, EntryKind::Keyed, index, made, before.max(BUSY) + 1)
}

/// A number for a key: two keys have the same number only by chance, and nobody outside can find
/// such keys.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn name<W: Maps>(maps: &W, key: &KeyCell) -> u64 {
    let seed = maps.entry_table(EntryKind::Keyed).map_or(0, |entry_table| entry_table.seed());
    key.get().hash(seed).max(BUSY + 1)
}

/// Claims a ring slot for one more key, if their table has space.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn reserve<W: Maps>(maps: &W, scratch: &Scratch) -> Option<Claim> {
    let now = scratch.now();
    let mut rounds = Rounds::new();
    while let Some(number) = rounds.next(u64::from(PROBES)) {
        let claim = call!(probe_keyed(maps, scratch; number, now));
        if claim.is_some() {
            return claim;
        }
    }
    full(maps, EntryKind::Keyed, now);
    None
}

/// Examines one ring slot for a key.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn probe_keyed<W: Maps>(maps: &W, scratch: &Scratch, number: u32, now: Ticks) -> Option<Claim> {
    let (index, EvictionPolicy { now, keep }) = ring::look(maps, EntryKind::Keyed, number, now)?;
    let slot = maps.ring_slot(EntryKind::Keyed, index)?;
    let state = ring::state(&slot)?;
    if state != EMPTY {
        if !call!(evict_keyed(maps, scratch; index, state, now, keep)) {
            return None;
        }
        ring::count_evicted(maps, EntryKind::Keyed);
    }
    ring::claim(&slot, index, state)
}

/// Removes the key of a ring slot whose state was `state`, if it may be removed. True if the slot
/// has no entry now. Exactly one CPU gets `true` for each entry.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn evict_keyed<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    index: u32,
    state: u64,
    now: Ticks,
    keep: Ticks,
) -> bool {
    // Copied, because the slot may get another key meanwhile. The state that is read afterwards
    // detects a torn copy.
    let key = &scratch.leaving;
    maps.ring_key(index, key);
    let Some(slot) = maps.ring_slot(EntryKind::Keyed, index) else {
        return false;
    };
    if slot.load() != state {
        return false;
    }
    let Some(bucket) = maps.keyed(key) else {
        return true;
    };
    if !retire(maps, scratch, &bucket, &EvictionPolicy { now, keep }) {
        return false;
    }
    // Only this CPU removes it, because it won the exchange above.
    maps.remove_keyed(key);
    true
}

/// Time for which a bucket stays after a packet has found it: 1 ms. The packet may be about to
/// charge it, and a hash map reuses the element of a removed entry at once. So a packet's own
/// search for space in another table cannot remove its bucket.
const REST: Ticks = Ticks::from_nanos(1_000_000);

/// Marks a bucket as removed, if allowed; the caller then removes it. Exactly one CPU gets `true`.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn retire<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    bucket: &W::Keyed,
    policy: &EvictionPolicy,
) -> bool {
    let seen = Resolved::from_raw(bucket.resolved().load());
    let used = Ticks::new(bucket.used());
    // Another CPU's clock may be ahead.
    let used = if used > policy.now { policy.now } else { used };
    if seen.is_converting()
        || policy.now.since(used) < REST
        || !policy.allows(used, bucket.packets())
        || !is_drained(maps, scratch, bucket, seen)
    {
        return false;
    }
    let scale = !seen.scale();
    let claim = Resolved::new(seen.generation(), seen.slot(), NO_RECORD, scale);
    if !bucket.resolved().compare_exchange(seen.raw(), claim.raw()) {
        return false;
    }
    call!(freeze(scratch; bucket, scale));
    if is_drained(maps, scratch, bucket, seen) {
        return true;
    }
    let settled = Resolved::new(seen.generation(), seen.slot(), Slot::NONE, scale);
    bucket.resolved().compare_exchange(claim.raw(), settled.raw());
    false
}

/// True if all limits of the bucket are unused, or if its rule is no longer known: then it was not
/// used for as many rule changes as there are slots.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn is_drained<W: Maps>(maps: &W, scratch: &Scratch, bucket: &W::Keyed, resolved: Resolved) -> bool {
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
        used |= call!(limit_fill(maps, scratch; bucket, resolved.slot(), place, scratch.now()));
    }
    used == 0
}

/// Flips the scale bit of every word, so that nobody charges it under the old rule.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn freeze(scratch: &Scratch, bucket: &impl Keyed, scale: bool) {
    let mut rounds = Rounds::new();
    while let Some(index) = rounds.next(WORD_COUNT) {
        let index = scratch.unknown(index);
        if let Some(cell) = bucket.cell(index) {
            let mut tries = Rounds::new();
            while tries.more(MAX_TRIES) {
                let word = cell.load();
                if word & 1 == u64::from(scale) || cell.compare_exchange(word, word ^ 1) {
                    break;
                }
            }
        }
    }
}
