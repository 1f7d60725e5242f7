//! Bringing a bucket up to the rules in force.
//!
//! A bucket of a table has several words, so its conversion to a changed rule is not one exchange.
//! One packet does it while the others of the same key wait:
//!
//! 1. Claim: it looks up the rule and exchanges `resolved` for one that names the rule before as
//!    `previous`. A packet that sees a `previous` waits.
//! 2. Freeze: it flips the scale bit of every word. A packet that is still charging under the rule
//!    before meets another bit and starts again, so the words stand still now.
//! 3. Convert: it reads what was available of each limit when the rule changed, and writes words
//!    that mean that so much is available since then of the limit at the same place of the new rule
//!    ([`crate::meter::carry`]). A limit that is the same keeps its words as they are.
//! 4. Release: it exchanges `resolved` for one without a `previous`.
//!
//! A packet that waits looks a bounded number of times and is then dropped as contended.

use limiter_common::bucket::{Generation, Resolved, Slot};
use limiter_common::wire::{MAX_LIMITS, MAX_TABLES, Record};

use super::entry::{freeze, insert};
use super::target::budget_bucket;
use crate::call::call;
use crate::cell::Cell;
use crate::maps::{Keyed, Maps};
use crate::outcome::Insert;
use crate::rounds::Rounds;
use crate::table::keys::lookup::most_specific;
use crate::table::limits::lease::is_set;
use crate::table::limits::limit::{NthWord, Used, fresh, limit_used, limit_word};
use crate::table::result::{BudgetRef, NO_RECORD, PLACES, Stale, WORD_COUNT};
use crate::table::scratch::Scratch;

/// Looks at a bucket that another packet converts, before this packet gives up.
const MAX_WAITS: u64 = 64;

/// `previous` of a bucket whose old rule is no longer known.
const UNKNOWN: Slot = NO_RECORD;

/// Refreshes what the account names: makes the bucket of the key in `scratch`, or brings it or a
/// budget up to the rules in force. The caller looks again.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn refresh<W: Maps>(maps: &W, scratch: &Scratch, index: u32) {
    let Some(account) = scratch.account(index) else {
        return;
    };
    let stale = account.stale.get();
    if !stale.is_key() {
        return refresh_budget(maps, scratch, stale);
    }
    if index >= MAX_TABLES {
        return;
    }
    let slot = call!(most_specific(maps, scratch; index));
    // Unknown, because otherwise the compiler omits the mask by which the verifier sees the bound.
    let Some(key) = scratch.key(scratch.unknown(index)) else {
        return;
    };
    if let Some(bucket) = maps.keyed(key) {
        return call!(update(maps, scratch; &bucket, slot, false));
    }
    let resolved = Resolved::new(scratch.generation(), slot, Slot::NONE, false);
    // Packets that a rule blocks get no entry, so that a flood to a blocked port cannot fill the
    // table.
    let blocked = maps.record(slot).is_some_and(Record::is_block);
    if blocked || matches!(insert(maps, scratch, (index, key), resolved), Insert::Refused) {
        // This key gets no bucket. The account remembers its rule, or that it has none, so that the
        // budget or the overflow bucket is charged.
        let slot = if slot == Slot::NONE { NO_RECORD } else { slot };
        account.fixed.set(slot.index());
        account.stale.set(Stale::budget_of(slot));
    }
}

/// Brings the budget of a record, or the overflow bucket of its rule, up to that record.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn refresh_budget<W: Maps>(maps: &W, scratch: &Scratch, stale: Stale) {
    let slot = stale.slot();
    if let Some(record) = maps.record(slot)
        && let Some(budget) = budget_bucket(maps, BudgetRef::of(record))
    {
        call!(update(maps, scratch; &budget, slot, true));
    }
}

/// Points a bucket to the record in `target`, and converts its words if that is a different one.
/// `shared` means that it is a budget.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn update<W: Maps>(maps: &W, scratch: &Scratch, bucket: &W::Keyed, target: Slot, shared: bool) {
    // Another CPU may have pointed the key to a newer record than that of this packet's rule set,
    // and that record names the budget. Then the budget belongs to that generation; otherwise its
    // rule would be unknown later.
    let generation = match maps.record(target) {
        Some(after) if !scratch.generation().knows(after.since) => {
            Generation::new(u64::from(after.since))
        }
        _ => scratch.generation(),
    };
    let seen = Resolved::from_raw(bucket.resolved().load());
    if seen.is_converting() {
        return wait(bucket);
    }
    if seen.generation().covers(generation) {
        return;
    }
    let before = maps.record(seen.slot());
    let known = match before {
        Some(record) => seen.generation().knows(record.since),
        None => false,
    };
    if known && seen.slot() == target || seen.slot() == Slot::NONE && target == Slot::NONE {
        let new = Resolved::new(generation, target, Slot::NONE, seen.scale());
        bucket.resolved().compare_exchange(seen.raw(), new.raw());
        return;
    }
    let previous = if known { seen.slot() } else { UNKNOWN };
    let scale = !seen.scale();
    let claim = Resolved::new(generation, target, previous, scale);
    if !bucket.resolved().compare_exchange(seen.raw(), claim.raw()) {
        return;
    }
    call!(freeze(scratch; bucket, scale));
    call!(clear_fresh(scratch;));
    if let Some(after) = maps.record(target) {
        convert(
            maps,
            bucket,
            if known { before } else { None },
            (seen.slot(), target),
            after,
            shared,
            scratch,
        );
    }
    call!(store_fresh(scratch; bucket, scale));
    let settled = Resolved::new(generation, target, Slot::NONE, scale);
    bucket.resolved().compare_exchange(claim.raw(), settled.raw());
}

/// Waits for the packet that converts the bucket.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn wait(bucket: &impl Keyed) {
    let mut rounds = Rounds::new();
    while rounds.more(MAX_WAITS) {
        if !Resolved::from_raw(bucket.resolved().load()).is_converting() {
            return;
        }
    }
}

/// Clears the words in the scratch.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn clear_fresh(scratch: &Scratch) {
    let mut rounds = Rounds::new();
    while let Some(index) = rounds.next(WORD_COUNT) {
        let index = scratch.unknown(index);
        if let Some(word) = fresh(scratch, index) {
            word.set(0);
        }
    }
}

/// Stores the words in the scratch, with a scale bit. Nobody else writes them at this time.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn store_fresh(scratch: &Scratch, bucket: &impl Keyed, scale: bool) {
    let mut rounds = Rounds::new();
    while let Some(index) = rounds.next(WORD_COUNT) {
        let index = scratch.unknown(index);
        if let Some(cell) = bucket.cell(index)
            && let Some(word) = fresh(scratch, index)
        {
            cell.compare_exchange(cell.load(), word.get() << 1 | u64::from(scale));
        }
    }
}

/// Writes to `scratch.fresh` the words that mean under `after` what those of the bucket mean under
/// `before`. A bucket with any debt under an unknown rule counts as used up: anything else could
/// grant what neither rule would have.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn convert<W: Maps>(
    maps: &W,
    bucket: &W::Keyed,
    before: Option<&Record>,
    (from, to): (Slot, Slot),
    after: &Record,
    shared: bool,
    scratch: &Scratch,
) {
    let unknown = before.is_none() && call!(is_used(scratch; bucket));
    // The limits of a key whose rule has a shared budget are charged there.
    let limits = if shared || after.budget == 0 { after.count } else { 0 };
    let old_limits = match before {
        Some(record) if !record.is_unlimited() && (shared || record.budget == 0) => record.count,
        _ => 0,
    };
    let moved = before.map_or(0, |record| record.leased) ^ after.leased;
    let mut rounds = Rounds::new();
    while let Some(place) = rounds.next(PLACES) {
        if place >= u32::from(limits) {
            break;
        }
        let used = if place < u32::from(old_limits) {
            // A limit that nodes begin or cease to share was charged elsewhere.
            let from = if is_set(moved, place) { NO_RECORD } else { from };
            call!(limit_used(maps, scratch; bucket, from, to, place))
        } else if unknown {
            call!(limit_used(maps, scratch; bucket, NO_RECORD, to, place))
        } else {
            Used::amount(0)
        };
        call!(limit_words(maps, scratch; bucket, from, to, place, used));
    }
}

/// Writes the words of the limit at a place to the scratch.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn limit_words<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    bucket: &W::Keyed,
    before: Slot,
    after: Slot,
    place: u32,
    used: Used,
) {
    let Some(record) = maps.record(after) else {
        return;
    };
    let words = match record.limits.get(place as usize & (MAX_LIMITS - 1)) {
        Some(spec) => u32::from(spec.words),
        None => 0,
    };
    let mut rounds = Rounds::new();
    while let Some(index) = rounds.next(WORD_COUNT) {
        if index >= words {
            break;
        }
        let nth = NthWord { place, index };
        call!(limit_word(maps, scratch; bucket, before, after, nth, used));
    }
}

/// True if any word is not empty.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn is_used(scratch: &Scratch, bucket: &impl Keyed) -> bool {
    let mut any = 0;
    let mut rounds = Rounds::new();
    while let Some(index) = rounds.next(WORD_COUNT) {
        let index = scratch.unknown(index);
        any |= bucket.cell(index).map_or(0, |cell| cell.load() >> 1);
    }
    any != 0
}
