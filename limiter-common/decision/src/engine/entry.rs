//! Entries of the source table: inserts a bucket, and evicts another one for it.
//!
//! An entry of the hash maps is removed in two steps. First its word is exchanged for
//! [`Word::GONE`]: from then on no charge can be stored in it. Then it is removed from the map. A
//! packet of that source that finds the word in between is judged as if it had no entry.

use limiter_common::bucket::Word;
use limiter_common::bucket_key::{BucketKey, EMPTY};
use limiter_common::time::Ticks;
use limiter_common::wire::{Bucket, EntryKind};

use crate::call::call;
use crate::cell::{Cell as _, SourceBucket};
use crate::entries::EvictionPolicy;
use crate::entries::admission::full;
use crate::entries::ring::{self, Claim, PROBES};
use crate::line;
use crate::maps::Maps;
use crate::outcome::Insert;
use crate::register::Register;
use crate::rounds::Rounds;

/// A claimed ring slot, and whether the first packet of its source was dropped.
#[derive(Clone, Copy, Debug)]
pub struct NewEntry {
    slot: u32,
    dropped: bool,
}

impl Register for NewEntry {
    const LOST: Self = Self { slot: 0, dropped: false };

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn to_register(self) -> u64 {
        u64::from(self.slot) << 32 | u64::from(self.dropped)
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn of_register(register: u64) -> Self {
        Self { slot: (register >> 32) as u32, dropped: register & 1 != 0 }
    }
}

/// Makes the bucket of a source that was granted an entry ([`crate::entries::admission::admit`]),
/// if there is none and there is space. For hash maps, in two subprograms, one after the other,
/// because their callers share 512 bytes of stack with them.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn insert<W: Maps>(maps: &W, bucket_key: &BucketKey, bucket: &Bucket, now: Ticks) -> Insert {
    let kind = bucket_key.kind();
    if maps.lines(kind).is_some() {
        return line::enter(maps, bucket_key, bucket, now);
    }
    let claim = call!(reserve(maps; kind, now));
    let Some(Claim { index: slot, .. }) = claim else {
        return Insert::Refused;
    };
    let new = NewEntry { slot, dropped: bucket.dropped & 1 != 0 };
    call!(make(maps; bucket_key, new, bucket.word, bucket.resolved))
}

/// Claims a ring slot for one more source, if their table has space.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn reserve<W: Maps>(maps: &W, kind: EntryKind, now: Ticks) -> Option<Claim> {
    let mut rounds = Rounds::new();
    while let Some(number) = rounds.next(u64::from(PROBES)) {
        let claim = call!(probe(maps; kind, number, now));
        if claim.is_some() {
            return claim;
        }
    }
    full(maps, kind, now);
    None
}

/// Examines one ring slot for a source.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn probe<W: Maps>(maps: &W, kind: EntryKind, number: u32, now: Ticks) -> Option<Claim> {
    let (index, EvictionPolicy { now, keep }) = ring::look(maps, kind, number, now)?;
    let slot = maps.ring_slot(kind, index)?;
    let state = ring::state(&slot)?;
    if state != EMPTY {
        if !call!(evict_source(maps; state, kind, now, keep)) {
            return None;
        }
        ring::count_evicted(maps, kind);
    }
    ring::claim(&slot, index, state)
}

/// Removes the source of a ring slot whose state was `state`, if it may be removed. True if the
/// slot has no entry now. Exactly one CPU gets `true` for each entry.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn evict_source<W: Maps>(
    maps: &W,
    state: u64,
    kind: EntryKind,
    now: Ticks,
    keep: Ticks,
) -> bool {
    let bucket_key = BucketKey::named(kind, state);
    let Some(bucket) = maps.source_bucket(&bucket_key) else {
        return true;
    };
    if !retire(&bucket, &EvictionPolicy { now, keep }) {
        return false;
    }
    // Only this CPU removes it, because it won the exchange above.
    maps.remove(&bucket_key);
    true
}

/// Marks a bucket as being removed, if allowed; the caller then removes it.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn retire(bucket: &impl SourceBucket, policy: &EvictionPolicy) -> bool {
    let packets = bucket.packets();
    let word = Word::from_raw(bucket.word().load());
    // It has drained under the limit under which it was charged. A larger limit since then is not
    // fully available to it yet, but a removed source begins again with a full bucket, like a new
    // one (docs/algorithms.md).
    !word.is_gone()
        && policy.allows(word.tat(), packets)
        && bucket.word().compare_exchange(word.raw(), Word::GONE.raw())
}

/// Makes the bucket of a source with these two words, and assigns the ring slot to it. Frees the
/// slot if the bucket was not made.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn make<W: Maps>(
    maps: &W,
    bucket_key: &BucketKey,
    NewEntry { slot, dropped }: NewEntry,
    word: u64,
    resolved: u64,
) -> Insert {
    let dropped = u64::from(dropped);
    let bucket = Bucket { word, resolved, passed: 1 - dropped, dropped };
    let made = maps.insert(bucket_key, &bucket);
    let name = bucket_key.name().unwrap_or(EMPTY);
    ring::complete(maps, bucket_key.kind(), slot, made, name)
}
