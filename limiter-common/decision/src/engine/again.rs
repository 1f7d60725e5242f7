//! The rest of a charge after a first failed attempt: brings the bucket up to the rules in force,
//! and retries if other CPUs interfere.

use limiter_common::bucket::{Change, Resolved, Word};
use limiter_common::verdict::Reason;
use limiter_common::wire::RULE_NONE;

use super::changed::{re_resolve, rescale};
use super::first::resolve;
use super::source_packet::{SourceCharge, SourcePacket};
use crate::call::call;
use crate::cell::{Cell, SourceBucket};
use crate::gcra::Charge;
use crate::maps::Maps;
use crate::outcome::Outcome;
use crate::rounds::{MAX_TRIES, Rounds};

/// How often a packet may find the bucket pointing to another limit before it is dropped as
/// [`Reason::Contended`]. One rule change takes two rounds; a second one that finds the first
/// unfinished takes four, and an exchange that another CPU wins takes one more.
const MAX_ROUNDS: u64 = 5;

/// The rest of a charge after a first attempt: brings the bucket up to the rules in force, and
/// retries.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn charge_again<W: Maps>(
    maps: &W,
    bucket: &impl SourceBucket,
    packet: &SourcePacket,
) -> SourceCharge {
    let SourcePacket { bucket_key, generation, now, .. } = packet;
    let mut rounds = Rounds::new();
    while rounds.more(MAX_ROUNDS) {
        let resolved = Resolved::from_raw(bucket.resolved().load());
        let word = Word::from_raw(bucket.word().load());
        if word.scale() != resolved.scale() {
            // This comes before a newer rule is looked up, because only its own generation knows
            // the meaning of its slots.
            rescale(maps, bucket, resolved, word, *now);
            continue;
        }
        if !resolved.generation().covers(*generation) {
            match call!(resolve(maps; bucket_key, *generation)) {
                Some(slot) => call!(re_resolve(maps; bucket, bucket_key, *generation, slot)),
                None => return judged(Outcome::without_rule(Reason::NoRule)),
            }
            continue;
        }
        let Some(limit) = maps.limit(resolved.slot()) else {
            return judged(Outcome::without_rule(Reason::NoRule));
        };
        if limit.is_unlimited() {
            return judged(Outcome::new(Reason::Unlimited, limit.rule));
        }
        let (outcome, stored) = call!(charge_contended(maps; bucket, packet));
        if outcome.is_some() {
            return (outcome, stored);
        }
    }
    if Word::from_raw(bucket.word().load()).is_gone() {
        return (None, Change::NONE);
    }
    let limit = maps.limit(Resolved::from_raw(bucket.resolved().load()).slot());
    judged(Outcome::new(Reason::Contended, limit.map_or(RULE_NONE, |limit| limit.rule)))
}

#[cfg_attr(target_arch = "bpf", inline(always))]
const fn judged(outcome: Outcome) -> SourceCharge {
    (Some(outcome.pack()), Change::NONE)
}

/// Charges an up-to-date bucket after a first attempt. No outcome if it is not up to date, or no
/// longer.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn charge_contended<W: Maps>(
    maps: &W,
    bucket: &impl SourceBucket,
    packet: &SourcePacket,
) -> SourceCharge {
    let mut stored = Change::NONE;
    let resolved = Resolved::from_raw(bucket.resolved().load());
    if !resolved.generation().covers(packet.generation) {
        return (None, stored);
    }
    let Some(limit) = maps.limit(resolved.slot()) else {
        return (None, stored);
    };
    let charge = Charge::of_frame(limit, packet.now, packet.size);
    let outcome = match exchange(&bucket.word(), resolved.scale(), &charge, &mut stored) {
        None => None,
        Some(Reason::OverLimit) => Some(Outcome::over(limit).pack()),
        Some(reason) => Some(Outcome::new(reason, limit.rule).pack()),
    };
    (outcome, stored)
}

/// The rest of the compare-and-exchange loop after a first attempt, on a word with the scale bit
/// `scale`. `None` if the bucket was converted to another limit meanwhile, or is being removed.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn exchange(
    cell: &impl Cell,
    scale: bool,
    charge: &Charge,
    stored: &mut Change,
) -> Option<Reason> {
    let mut rounds = Rounds::new();
    while rounds.more(MAX_TRIES - 1) {
        let word = Word::from_raw(cell.load());
        // If it is being removed, the caller looks again and sees that.
        if word.scale() != scale || word.is_gone() {
            return None;
        }
        if let Some(reason) = charge.attempt(cell, word, stored) {
            return Some(reason);
        }
    }
    Some(Reason::Contended)
}
