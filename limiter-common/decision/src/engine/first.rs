//! The first packet of a source: looks up the rules and makes a bucket.

use core::hint::black_box;

use limiter_common::bucket::{Change, Generation, Resolved, Slot, Word};
use limiter_common::bucket_key::{BucketKey, EMPTY};
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{Bucket, RULE_NONE};

use super::entry::insert;
use super::source_packet::{SourceCharge, SourcePacket};
use crate::call::call;
use crate::entries::admission::{Admittance, admit};
use crate::entries::aggregate::{Unplaced, debt, judge_aggregate, over};
use crate::gcra::Charge;
use crate::maps::Maps;
use crate::outcome::{Insert, Outcome, Packed};

/// The slot of a source's rule: that of the longest prefix that contains it.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn resolve<W: Maps>(maps: &W, bucket_key: &BucketKey, generation: Generation) -> Option<Slot> {
    maps.source_rule(generation, bucket_key)
}

/// Judges a packet whose source has no bucket and gets none.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn without_bucket<W: Maps>(maps: &W, packet: &SourcePacket) -> Packed {
    let SourcePacket { bucket_key, generation, now, .. } = packet;
    let size = packet.size;
    let Some(slot) = call!(resolve(maps; bucket_key, *generation)) else {
        return Outcome::without_rule(Reason::NoRule).pack();
    };
    let unplaced = Unplaced { slot, first_seen: false };
    let reason = call!(judge_aggregate(maps; bucket_key, unplaced, size, *now));
    Outcome::new(reason, maps.limit(slot).map_or(RULE_NONE, |limit| limit.rule)).pack()
}

/// The first packet of a source: makes the bucket with the packet already charged, and with what
/// the source may have used of the bucket that it shared before. No outcome if another CPU was
/// faster.
///
/// Asks for an entry before looking up anything but its rule, because most packets of a flood need
/// no more.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn first<W: Maps>(maps: &W, packet: &SourcePacket) -> SourceCharge {
    let SourcePacket { bucket_key, generation, now, deferred, .. } = packet;
    let (size, now) = (packet.size, *now);
    let no_rule = Outcome::without_rule(Reason::NoRule).pack();
    let Some(slot) = call!(resolve(maps; bucket_key, *generation)) else {
        return (Some(no_rule), Change::NONE);
    };
    let Some(limit) = maps.limit(slot) else {
        return (Some(no_rule), Change::NONE);
    };
    let charge = Charge::of_frame(limit, now, size);
    // A frame that no bucket could hold is over its limit in any case.
    let reason = if limit.is_unlimited() {
        Reason::Unlimited
    } else if charge.apply(Ticks::ZERO).is_some() {
        Reason::Conforming
    } else {
        limit.over()
    };
    let action = if matches!(reason, Reason::OverLimit) { limit.action } else { 0 };
    let mut outcome = Outcome { action, ..Outcome::new(reason, limit.rule) }.pack();
    if *deferred && outcome.is_deferred() {
        // The next packet makes the bucket.
        return (Some(outcome), Change::NONE);
    }
    let name = bucket_key.name().unwrap_or(EMPTY);
    let first_seen = match call!(admit(maps; bucket_key.kind(), name, now)) {
        Admittance::FirstSeen => true,
        Admittance::OverBudget => false,
        Admittance::Granted => {
            let debt = call!(debt(maps; bucket_key, slot));
            // Where a frame may be several packets, keeping the charge until here takes more stack
            // than Linux 6.1 has, so it is computed again.
            let (again, size) = if W::SUPER_FRAMES {
                (maps.limit(slot), black_box(size))
            } else {
                (Some(limit), size)
            };
            let Some(limit) = again else {
                return (Some(no_rule), Change::NONE);
            };
            let charge = Charge::of_frame(limit, now, size);
            let tat = match charge.apply(debt) {
                _ if limit.is_unlimited() => Ticks::ZERO,
                Some(tat) => tat,
                None => {
                    // With its neighbours' debt it is over its limit: it gets a bucket with the
                    // same debt, so that they no longer keep it out.
                    if outcome.is(Reason::Conforming) {
                        let reason = over(limit, Reason::OverAggregate);
                        // The rule's number from the outcome: the limit's number would be kept on
                        // the stack.
                        outcome = Outcome::new(reason, outcome.rule()).pack();
                    }
                    debt
                }
            };
            let packets = size.packets();
            let dropped = if outcome.drops() { packets } else { 0 };
            let bucket = Bucket {
                word: Word::new(tat, false).raw(),
                resolved: Resolved::new(*generation, slot, Slot::NONE, false).raw(),
                passed: packets - dropped,
                dropped,
            };
            match insert(maps, bucket_key, &bucket, now) {
                Insert::Made => {
                    // After an undo the bucket owes what it did at `now`: in a line, the time in a
                    // way never goes back past that (`crate::line`).
                    let before = if debt > now { debt } else { now };
                    let stored = Change { old: Word::new(before, false).raw(), new: bucket.word };
                    return (Some(outcome), stored);
                }
                Insert::Exists => return (None, Change::NONE),
                Insert::Refused => false,
            }
        }
    };
    if outcome.is(Reason::OverLimit) || outcome.is(Reason::Shadow) {
        return (Some(outcome), Change::NONE);
    }
    let unplaced = Unplaced { slot, first_seen };
    let reason = call!(judge_aggregate(maps; bucket_key, unplaced, size, now));
    (Some(Outcome::new(reason, outcome.rule()).pack()), Change::NONE)
}
