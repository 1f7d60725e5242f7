//! A packet in the tables where its key is compact ([`crate::table::keys::compact`]): its
//! keys are in a row, and are checked and charged there one after the other.
//!
//! The order is that of all tables: check everywhere, charge the source, charge everywhere. A check
//! stores the exchange that charges the bucket. A key without an up-to-date bucket has no exchange:
//! it is judged when it is charged.

use core::cell;

use limiter_common::bucket::{Change, Resolved, Word};
use limiter_common::bucket_key::BucketKey;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{EntryKind, MAX_TABLES, RULE_NONE};

use crate::call::call;
use crate::cell::{Cell, SourceBucket};
use crate::clock::SLACK;
use crate::engine::SourcePacket;
use crate::engine::source::{carry_on, count_drop, find_in, judge, undo_bucket_key};
use crate::gcra::Charge;
use crate::line::{LineSlot, in_line_slot};
use crate::maps::Maps;
use crate::outcome::{Outcome, Packed};
use crate::register::Register;
use crate::rounds::Rounds;
use crate::stored::either;
use crate::table::charges::undo::{undo_source, undo_table};
use crate::table::clock::read_clock;
use crate::table::keys::compact::compact_in;
use crate::table::limits::weight::weight_of;
use crate::table::scratch::{CompactCharge, SOURCE_CLASS, Scratch};

/// Checks the limits of all compact keys of a packet. Returns the outcome if it is over one.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn look_compact<W: Maps>(maps: &W, scratch: &Scratch) -> Option<Packed> {
    let compact = scratch.compact.get();
    let mut length = 0;
    let mut rounds = Rounds::new();
    while let Some(index) = rounds.next(u64::from(MAX_TABLES)) {
        if compact >> index == 0 {
            break;
        }
        if compact >> index & 1 == 0 {
            continue;
        }
        if call!(look_at_compact(maps, scratch; index, length)) {
            let rule = charge(scratch, scratch.unknown(length)).rule;
            return Some(Outcome::new(Reason::OverLimit, rule).pack());
        }
        length += 1;
    }
    scratch.compact_keys.set(length);
    None
}

/// Charges the compact keys of a packet after the check, from a place of the row on. Returns the
/// outcome if one drops it: then the earlier charges are undone, in the source table as well.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn charge_compact<W: Maps>(maps: &W, scratch: &Scratch, first: u32) -> Option<Packed> {
    let length = scratch.compact_keys.get();
    let mut rounds = Rounds::new();
    while let Some(place) = rounds.next(u64::from(MAX_TABLES)) {
        if place >= length {
            break;
        }
        if place < first {
            continue;
        }
        if call!(charge_at_compact(maps, scratch; place)) {
            continue;
        }
        let (generation, size, now) = (scratch.generation(), scratch.size::<W>(), scratch.now());
        let bucket_key = bucket_key(scratch, scratch.unknown(place));
        let packet = SourcePacket { bucket_key, generation, size, now, deferred: false };
        let (outcome, change) = call!(judge(maps; &packet));
        scratch.set_change(change);
        let outcome = call!(settle_compact(maps, scratch; place, outcome));
        if outcome.is_some() {
            return outcome;
        }
    }
    None
}

/// Judges a packet by one table alone where its key is compact. Returns the reason there and the
/// number of the rule.
#[cfg(not(target_arch = "bpf"))]
pub fn judge_compact_alone<W: Maps>(maps: &W, scratch: &Scratch, index: u32) -> (Reason, u32) {
    scratch.compact.set(1 << (index & (MAX_TABLES - 1)));
    if let Some(outcome) = look_compact(maps, scratch).or_else(|| charge_compact(maps, scratch, 0))
    {
        return (outcome.unpack().reason, outcome.rule());
    }
    let CompactCharge { rule, reason, .. } = charge(scratch, 0);
    (Reason::from_index(reason), rule)
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn bucket_key(scratch: &Scratch, place: u32) -> BucketKey {
    BucketKey::compact(scratch.compact_key(place).map_or(0, cell::Cell::get))
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn charge(scratch: &Scratch, place: u32) -> CompactCharge {
    scratch.compact_charge(place).map_or_else(CompactCharge::none, cell::Cell::get)
}

/// Writes the key of a packet in a compact table to a place of the row. Checks the limit, and
/// stores the exchange that charges it, if known. True if the packet is over the limit: then it is
/// counted.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn look_at_compact<W: Maps>(maps: &W, scratch: &Scratch, index: u32, place: u32) -> bool {
    let (Some(table), Some(word), Some(charge)) = (
        maps.table(scratch.generation(), index),
        scratch.compact_key(place),
        scratch.compact_charge(place),
    ) else {
        return false;
    };
    let bucket_key = compact_in(table, &scratch.facts, &scratch.key_facts.get());
    word.set(bucket_key.word());
    charge.set(CompactCharge::none());
    match maps.lines(EntryKind::Compact) {
        Some(lines) => in_line_slot(maps, &bucket_key, lines).is_some_and(|(line_slot, bucket)| {
            look_in(maps, scratch, &bucket, (&bucket_key, Some(line_slot)), place)
        }),
        None => maps
            .source_bucket(&bucket_key)
            .is_some_and(|bucket| look_in(maps, scratch, &bucket, (&bucket_key, None), place)),
    }
}

/// [`look_at_compact`] in the bucket of the key.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn look_in<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    bucket: &impl SourceBucket,
    (bucket_key, line_slot): (&BucketKey, Option<LineSlot>),
    place: u32,
) -> bool {
    let (Some(Look { exchange, rule }), Some(charge)) =
        (look(maps, scratch, bucket, true), scratch.compact_charge(place))
    else {
        return false;
    };
    let mut next =
        CompactCharge { rule, line_slot: line_slot.to_register(), ..CompactCharge::none() };
    let over = exchange.is_none();
    if let Some(change) = exchange {
        next.change = change;
    } else {
        #[cfg(not(target_arch = "bpf"))]
        scratch.stop_in_row(place);
        count_drop(maps, bucket_key, bucket, scratch.size::<W>().packets());
    }
    charge.set(next);
    over
}

/// The check of the limit of an up-to-date bucket.
pub(crate) struct Look {
    /// The exchange that charges the packet; `None` if it is over the limit.
    pub(crate) exchange: Option<Change>,
    pub(crate) rule: u32,
}

/// Checks the limit of a bucket; `None` if the bucket is not up to date, or its limit drops
/// nothing. The time of arrival is exact, unless this is the first check.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn look<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    bucket: &impl SourceBucket,
    is_first: bool,
) -> Option<Look> {
    let resolved = Resolved::from_raw(bucket.resolved().load());
    let limit = maps.limit(resolved.slot())?;
    let word = Word::from_raw(bucket.word().load());
    let is_hard = !limit.is_unlimited() && matches!(limit.over(), Reason::OverLimit);
    let is_current = resolved.generation().covers(scratch.generation());
    if !is_current || !is_hard || word.is_gone() || word.scale() != resolved.scale() {
        return None;
    }
    let rule = limit.rule;
    let slack = if is_first { SLACK } else { Ticks::ZERO };
    let mut charge = Charge::of_frame(limit, scratch.now().plus(slack), scratch.size::<W>());
    if is_first {
        // It has long been over the limit, so the exact time does not matter.
        if charge.is_over_until_now(word.tat()) {
            return Some(Look { exchange: None, rule });
        }
        let is_super_frame = scratch.size::<W>().is_super_frame();
        charge = charge.at(limit, read_clock(maps, scratch), is_super_frame);
    }
    let tat = charge.apply(word.tat());
    let exchange =
        tat.map(|tat| Change { old: word.raw(), new: Word::new(tat, word.scale()).raw() });
    Some(Look { exchange, rule })
}

/// Charges a compact key by the stored exchange, counts the packet, and records that it conforms.
/// False if there is no exchange, or another CPU was faster.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn charge_at_compact<W: Maps>(maps: &W, scratch: &Scratch, place: u32) -> bool {
    let bucket_key = bucket_key(scratch, place);
    let CompactCharge { change: Change { old, new }, line_slot, .. } = charge(scratch, place);
    if old == new {
        return false;
    }
    let Some(bucket) = find_in(maps, &bucket_key, Register::of_register(line_slot)) else {
        return false;
    };
    let charge = charge(scratch, place);
    if !either!(&bucket, bucket => exchange(maps, scratch, &bucket_key, bucket, charge)) {
        return false;
    }
    scratch.conforms();
    true
}

/// Charges a compact key by the stored exchange, and counts the packet; false if another CPU was
/// faster.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn exchange<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    bucket_key: &BucketKey,
    bucket: &impl SourceBucket,
    charge: CompactCharge,
) -> bool {
    let CompactCharge { change: Change { old, new }, rule, .. } = charge;
    // In a line, an exchange is valid for the limit that was read last.
    bucket.resolved().load();
    if !bucket.word().compare_exchange(old, new) {
        return false;
    }
    maps.count_rule(rule, Reason::Conforming, scratch.size::<W>(), true);
    bucket.count_passed(scratch.size::<W>().packets());
    carry_on(maps, bucket_key, bucket);
    true
}

/// Ends a charge that was judged without an exchange. A passing packet is counted under the rule;
/// its reason is the more specific one of this and the earlier reason. If it is dropped, the
/// earlier charges are undone.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn settle_compact<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    place: u32,
    outcome: Packed,
) -> Option<Packed> {
    if outcome.drops() {
        #[cfg(not(target_arch = "bpf"))]
        scratch.stop_in_row(place);
        call!(undo_compact(maps, scratch; place));
        call!(undo_table(maps, scratch; SOURCE_CLASS));
        if scratch.sources.get() != 0 {
            undo_source(maps, scratch);
        }
        return Some(outcome);
    }
    let (rule, reason) = (outcome.rule(), outcome.reason_index());
    let before = Packed::from_raw(scratch.source_outcome.get());
    if weight_of(reason) > weight_of(before.reason_index()) {
        scratch.source_outcome.set(before.passed_as(reason, 0).raw());
    }
    if let Some(charge) = scratch.compact_charge(place) {
        charge.set(CompactCharge { change: scratch.change(), rule, reason, ..charge.get() });
    }
    if rule != RULE_NONE {
        maps.count_rule(rule, Reason::from_index(reason), scratch.size::<W>(), true);
    }
    None
}

/// Undoes the charges and counts of compact keys before a place of the row.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn undo_compact<W: Maps>(maps: &W, scratch: &Scratch, end: u32) {
    let mut rounds = Rounds::new();
    while let Some(place) = rounds.next(u64::from(MAX_TABLES)) {
        if place >= end {
            break;
        }
        call!(undo_at_compact(maps, scratch; place));
    }
}

/// Undoes the charge and the counts of the compact key at a place of the row.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn undo_at_compact<W: Maps>(maps: &W, scratch: &Scratch, place: u32) {
    let CompactCharge { change: Change { old, new }, rule, reason, .. } = charge(scratch, place);
    let packets = scratch.size::<W>().packets();
    undo_bucket_key(maps, &bucket_key(scratch, place), old, new, packets);
    if rule != RULE_NONE {
        maps.count_rule(rule, Reason::from_index(reason), scratch.size::<W>(), false);
    }
}
