//! The first packet of a source: the rules are asked, and a bucket is made.

use super::entry::insert;
use super::source_packet::{SourceCharge, SourcePacket};
use crate::bucket::{Change, Generation, Resolved, Slot, Word};
use crate::entries::aggregate::{debt, judge_aggregate};
use crate::gcra::Charge;
use crate::outcome::{Insert, Outcome, Packed};
use crate::source::Source;
use crate::step::step;
use crate::time::Ticks;
use crate::verdict::Reason;
use crate::wire::{Bucket, RULE_NONE};
use crate::world::World;

/// The slot of the rule of a source: of the longest prefix around it.
#[inline(always)]
pub fn resolve<W: World>(maps: &W, source: &Source, generation: Generation) -> Option<Slot> {
    maps.source_rule(generation, source)
}

/// A packet whose source has no bucket and gets none.
#[inline(always)]
pub fn without_bucket<W: World>(maps: &W, packet: &SourcePacket) -> Packed {
    let SourcePacket { source, generation, length, now, .. } = packet;
    let Some(slot) = step!(resolve(maps; source, *generation)) else {
        return Outcome::without_rule(Reason::NoRule).pack();
    };
    let reason = step!(judge_aggregate(maps; source, slot, *length, *now));
    Outcome::new(reason, maps.limit(slot).map_or(RULE_NONE, |limit| limit.rule)).pack()
}

/// The first packet of a source: the bucket is made with the packet already charged, and with what
/// the source may have used up of the bucket that it shared before. No outcome when another CPU was
/// faster.
#[inline(always)]
pub fn first<W: World>(maps: &W, packet: &SourcePacket) -> SourceCharge {
    let SourcePacket { source, generation, length, now, deferred } = packet;
    let (length, now) = (*length, *now);
    let no_rule = Outcome::without_rule(Reason::NoRule).pack();
    let Some(slot) = step!(resolve(maps; source, *generation)) else {
        return (Some(no_rule), Change::NONE);
    };
    let Some(limit) = maps.limit(slot) else {
        return (Some(no_rule), Change::NONE);
    };
    let debt = step!(debt(maps; source, slot));
    let mut made = Insert::Refused;
    let mut stored = Change::NONE;
    let mut reason = Reason::Conforming;
    let mut tat = Some(Ticks::ZERO);
    if limit.is_unlimited() {
        reason = Reason::Unlimited;
    } else {
        let charge = Charge::new(limit, now, limit.units(length));
        tat = charge.apply(debt);
        if tat.is_none() && charge.apply(Ticks::ZERO).is_none() {
            // A frame that no bucket could hold.
            (reason, tat) = (limit.over(), Some(debt));
        }
    }
    let action = if matches!(reason, Reason::OverLimit) { limit.action } else { 0 };
    let outcome = Outcome { action, ..Outcome::new(reason, limit.rule) }.pack();
    if *deferred && outcome.is_deferred() {
        // The next packet makes the bucket.
        return (Some(outcome), Change::NONE);
    }
    // `None`: with the debt of the shared bucket the packet is over its limit. It gets no bucket;
    // the shared one decides.
    if let Some(tat) = tat {
        let over = outcome.drops();
        let bucket = Bucket {
            word: Word::new(tat, false).raw(),
            resolved: Resolved::new(*generation, slot, Slot::NONE, false).raw(),
            passed: u64::from(!over),
            dropped: u64::from(over),
        };
        made = insert(maps, source, &bucket, now);
        // Undone, the bucket owes what it did at `now`: in a line, the time of a way never goes
        // back past that (`crate::line`).
        let before = if debt > now { debt } else { now };
        stored = Change { old: Word::new(before, false).raw(), new: bucket.word };
        if over && matches!(made, Insert::Refused) {
            return (Some(outcome), Change::NONE);
        }
    }
    match made {
        Insert::Made => (Some(outcome), stored),
        Insert::Exists => (None, Change::NONE),
        Insert::Refused => {
            let reason = step!(judge_aggregate(maps; source, slot, length, now));
            (Some(Outcome::new(reason, limit.rule).pack()), Change::NONE)
        }
    }
}
