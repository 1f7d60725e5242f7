//! The source table: one token bucket for each source address.
//!
//! In the steady state this is one look-up in a bucket map. The rules are looked up only for a
//! source without a bucket ([`first`]) and after a new generation ([`charge_again`]).

use core::cell::Cell as Local;

use limiter_common::bucket::{Change, Resolved, Word};
use limiter_common::bucket_key::BucketKey;
use limiter_common::verdict::Reason;
use limiter_common::wire::{EntryKind, Uncounted};

use super::again::charge_again;
use super::first::{first, without_bucket};
use super::source_packet::{SourceCharge, SourcePacket};
use crate::call::call;
use crate::cell::{Cell, SourceBucket};
use crate::clock;
use crate::gcra::Charge;
use crate::line::{LineSlot, bucket_again, bucket_in, carry, in_line_slot};
use crate::maps::Maps;
use crate::outcome::{Outcome, Packed};
use crate::stored::{Stored, StoredIn, either};

/// Judges a packet by the source table alone, where being over a limit means a drop.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn plain_source<W: Maps>(maps: &W, packet: &SourcePacket) -> Packed {
    judge(maps, &SourcePacket { deferred: false, ..*packet }).0
}

/// Judges a packet of a source and charges it. The packet may have arrived up to [`clock::SLACK`]
/// after the time in `packet`. A deferred packet over a limit with an action is not counted in the
/// bucket: [`count_source`] counts it once the effect of the action is known.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn judge<W: Maps>(maps: &W, packet: &SourcePacket) -> (Packed, Change) {
    let bucket_key = &packet.bucket_key;
    match maps.lines(bucket_key.kind()) {
        Some(lines) => {
            let bucket = in_line_slot(maps, bucket_key, lines).map(|(_, bucket)| bucket);
            judge_in(maps, packet, bucket, || bucket_again(maps, bucket_key))
        }
        None => judge_in(maps, packet, maps.source_bucket(bucket_key), || {
            maps.source_bucket(bucket_key)
        }),
    }
}

/// [`judge`] in the store of `bucket`; `again` looks the bucket up again.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn judge_in<W: Maps, B: SourceBucket>(
    maps: &W,
    packet: &SourcePacket,
    bucket: Option<B>,
    again: impl FnOnce() -> Option<B>,
) -> (Packed, Change) {
    let bucket_key = &packet.bucket_key;
    let bucket = if let Some(bucket) = bucket {
        bucket
    } else {
        let (outcome, stored) = call!(first(maps; &packet.at(maps.now(packet.now))));
        if let Some(outcome) = outcome {
            return (outcome, stored);
        }
        // Another CPU made the bucket between the look-up and the insert.
        let Some(bucket) = again() else {
            return unbucketed(maps, packet);
        };
        bucket
    };
    let bucket = &bucket;
    let (outcome, stored) = charge(maps, bucket, packet);
    let Some(outcome) = outcome else {
        return unbucketed(maps, packet);
    };
    if !(packet.deferred && outcome.is_deferred()) {
        if outcome.drops() {
            count_drop(maps, bucket_key, bucket, packet.size.packets());
        } else {
            bucket.count_passed(packet.size.packets());
            carry_on(maps, bucket_key, bucket);
        }
    }
    (outcome, stored)
}

#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn find<W: Maps>(maps: &W, bucket_key: &BucketKey) -> Option<StoredIn<W>> {
    match maps.lines(bucket_key.kind()) {
        Some(lines) => Some(Stored::Lined(in_line_slot(maps, bucket_key, lines)?.1)),
        None => Some(Stored::Hashed(maps.source_bucket(bucket_key)?)),
    }
}

/// The bucket of a compact key whose word is in memory.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn find_compact<W: Maps>(maps: &W, word: &Local<u64>) -> Option<StoredIn<W>> {
    match maps.lines(EntryKind::Compact) {
        Some(lines) => {
            Some(Stored::Lined(in_line_slot(maps, &BucketKey::compact(word.get()), lines)?.1))
        }
        None => Some(Stored::Hashed(maps.compact_bucket(word)?)),
    }
}

/// The bucket of a source. In lines its line slot must be known; in a hash map it is looked up.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn find_in<W: Maps>(
    maps: &W,
    bucket_key: &BucketKey,
    line_slot: Option<LineSlot>,
) -> Option<StoredIn<W>> {
    match maps.lines(bucket_key.kind()) {
        Some(_) => Some(Stored::Lined(bucket_in(maps, bucket_key, line_slot?)?)),
        None => Some(Stored::Hashed(maps.source_bucket(bucket_key)?)),
    }
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn unbucketed<W: Maps>(maps: &W, packet: &SourcePacket) -> (Packed, Change) {
    let outcome = call!(without_bucket(maps; &packet.at(maps.now(packet.now))));
    (outcome, Change::NONE)
}

/// Charges a packet to its bucket. No outcome if the bucket is being removed. As in [`judge`], the
/// packet may have arrived later than it says.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn charge<W: Maps>(maps: &W, bucket: &impl SourceBucket, packet: &SourcePacket) -> SourceCharge {
    let mut stored = Change::NONE;
    match charge_at_once(maps, bucket, packet, &mut stored) {
        Some(outcome) => (Some(outcome.pack()), stored),
        None => call!(charge_again(maps; bucket, &packet.at(maps.now(packet.now)))),
    }
}

/// The steady state: an up-to-date bucket, and one undisturbed exchange. `None` for everything
/// else. Separate from [`charge_again`], because the verifier walks a loop for every path into it.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn charge_at_once<W: Maps>(
    maps: &W,
    bucket: &impl SourceBucket,
    packet: &SourcePacket,
    stored: &mut Change,
) -> Option<Outcome> {
    let resolved = Resolved::from_raw(bucket.resolved().load());
    if !resolved.generation().covers(packet.generation) {
        return None;
    }
    let limit = maps.limit(resolved.slot())?;
    if limit.is_unlimited() {
        return Some(Outcome::new(Reason::Unlimited, limit.rule));
    }
    let word = Word::from_raw(bucket.word().load());
    if word.scale() != resolved.scale() {
        return None;
    }
    let latest = packet.now.plus(clock::SLACK);
    let later = Charge::of_frame(limit, latest, packet.size);
    // It has long been over the limit, so the exact time does not matter.
    if !later.is_over_until_now(word.tat()) {
        let charge = later.at(limit, maps.now(packet.now), packet.size.is_super_frame());
        let reason = charge.attempt(&bucket.word(), word, stored)?;
        if !matches!(reason, Reason::OverLimit) {
            return Some(Outcome::new(reason, limit.rule));
        }
    }
    // The word of a bucket that is being removed is over any limit.
    if word.is_gone() { None } else { Some(Outcome::over(limit)) }
}

/// Counts the packets of a dropped frame. A CPU that drops many packets of one source in a row
/// accumulates them and adds them to the bucket together: [`limiter_common::wire::Uncounted`].
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn count_drop<W: Maps>(
    maps: &W,
    bucket_key: &BucketKey,
    bucket: &impl SourceBucket,
    packets: u64,
) {
    let packets = match maps.uncounted() {
        Some(cell) => {
            if let Some(packets) = Uncounted::again(cell, bucket_key, packets) {
                packets
            } else {
                call!(begin_drops(maps; bucket_key));
                packets
            }
        }
        None => packets,
    };
    if packets != 0 {
        bucket.count_dropped(packets);
        carry_on(maps, bucket_key, bucket);
    }
}

/// Counts dropped packets in the bucket of their key.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn count_over<W: Maps>(maps: &W, bucket_key: &BucketKey, packets: u64) {
    if let Some(bucket) = find(maps, bucket_key) {
        either!(&bucket, bucket => count_drop(maps, bucket_key, bucket, packets));
    }
}

/// Carries the upper bits of a bucket's counts if necessary.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn carry_on<W: Maps>(maps: &W, bucket_key: &BucketKey, bucket: &impl SourceBucket) {
    if bucket.is_due() {
        call!(carry(maps; bucket_key));
    }
}

/// Adds this CPU's accumulated drops of the last source to its bucket, and begins with this one.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn begin_drops<W: Maps>(maps: &W, bucket_key: &BucketKey) {
    let Some(cell) = maps.uncounted() else {
        return;
    };
    let (before, packets) = cell.get().held();
    if packets != 0
        && let Some(bucket) = find(maps, &before)
    {
        either!(&bucket, bucket => bucket.count_dropped(packets));
    }
    cell.set(Uncounted::begin(bucket_key));
}

/// Counts the packets of a frame in the bucket of their source.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn count_source<W: Maps>(maps: &W, bucket_key: &BucketKey, passed: bool, packets: u64) {
    let Some(bucket) = find(maps, bucket_key) else {
        return;
    };
    if passed {
        either!(&bucket, bucket => bucket.count_passed(packets));
    } else {
        either!(&bucket, bucket => bucket.count_dropped(packets));
    }
}

/// Undoes what [`judge`] did to a bucket for a packet that passed: the change of the word from
/// `old` to `new`, if nobody has charged it since. Otherwise it stays charged.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn undo_bucket_key<W: Maps>(
    maps: &W,
    bucket_key: &BucketKey,
    old: u64,
    new: u64,
    packets: u64,
) {
    if let Some(bucket) = find(maps, bucket_key) {
        either!(&bucket, bucket => undo(bucket, old, new, packets));
    }
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn undo(bucket: &impl SourceBucket, old: u64, new: u64, packets: u64) {
    if old != new {
        bucket.word().compare_exchange(new, old);
    }
    bucket.count_passed(packets.wrapping_neg());
}
