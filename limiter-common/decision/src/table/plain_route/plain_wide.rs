//! The full keys of a packet in plain tables: how each is looked up, checked, charged and undone.
//! [`super::plain_tables`] has the order.

use limiter_common::bucket::{Resolved, Slot};
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{MAX_TABLES, RULE_NONE, Record};

use super::compact_row::undo_compact;
use super::plain::{FIRST, SECOND, attempt_plain, plan_plain};
use crate::call::call;
use crate::cell::Cell;
use crate::clock::SLACK;
use crate::gcra;
use crate::maps::{Keyed, Maps};
use crate::meter::{Charged, Peek, repeat};
use crate::outcome::{Outcome, Packed};
use crate::rounds::Rounds;
use crate::table::charges::undo::undo_source;
use crate::table::clock::read_clock;
use crate::table::keys::key::{key_in, name_in, put};
use crate::table::limits::limit;
use crate::table::scratch::{Charge, Scratch};

/// Checks the limits of a full key, and stores the exchanges that charge them in the account.
/// Returns its bucket. An error ends the route, as in [`crate::table::judge_compact`].
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn look_full<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    index: u32,
    place: u32,
) -> Result<W::Keyed, Option<Packed>> {
    match find_full(maps, scratch, index, place) {
        Some(bucket) => match call!(look_at_full(maps, scratch; &bucket, place)) {
            Peek::Conforming => Ok(bucket),
            Peek::Over => {
                bucket.count(false, scratch.size::<W>().packets());
                Err(Some(Outcome::new(Reason::OverLimit, rule(scratch, place)).pack()))
            }
            Peek::Moved => Err(None),
        },
        None => Err(None),
    }
}

/// The bucket of the packet's key in a table, if there is one and its name does not need ranges.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn find_full<W: Maps>(maps: &W, scratch: &Scratch, index: u32, place: u32) -> Option<W::Keyed> {
    let table = maps.table(scratch.generation(), index)?;
    let [range, ..] = &table.ranges;
    if table.fixed != Slot::NONE.index() || range.is_some() {
        return None;
    }
    call!(set_key(maps, scratch; index, place));
    maps.keyed(scratch.key(place)?)
}

/// Writes the key of the packet in a table to a place. In the program, only its name, unless that
/// is a hash.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn set_key<W: Maps>(maps: &W, scratch: &Scratch, index: u32, place: u32) {
    if let Some(table) = maps.table(scratch.generation(), index)
        && let Some(key) = scratch.key(scratch.unknown(place))
    {
        let key_facts = scratch.key_facts.get();
        #[cfg(target_arch = "bpf")]
        if let Some(name) = name_in(table, &scratch.facts, &key_facts) {
            return key.set_name(name);
        }
        put(maps, key, key_in(table, &scratch.facts, &key_facts));
        // On the host, buckets are looked up by the keys themselves.
        #[cfg(not(target_arch = "bpf"))]
        debug_assert!(
            name_in(table, &scratch.facts, &key_facts)
                .is_none_or(|name| name == key.get().name(|| 0)),
            "the name of {:?}",
            key.get()
        );
    }
}

/// True if a packet over a limit of a record is only dropped.
#[cfg_attr(target_arch = "bpf", inline(always))]
const fn drops(record: &Record) -> bool {
    !record.is_shadow(true) && record.action == 0
}

/// True if the packet is in a single table, where its key is full: then it can start again if it
/// loses the race there.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn is_alone(scratch: &Scratch) -> bool {
    scratch.sources.get() == 0 && scratch.compact_keys.get() == 0 && scratch.full_keys.get() == 1
}

/// Checks the full key of a bucket; [`Peek::Moved`] if the packet needs the general route.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn look_at_full<W: Maps>(maps: &W, scratch: &Scratch, bucket: &W::Keyed, place: u32) -> Peek {
    let resolved = Resolved::from_raw(bucket.resolved().load());
    if resolved.is_converting() || !resolved.generation().covers(scratch.generation()) {
        return Peek::Moved;
    }
    let Some(record) = maps.record(resolved.slot()) else {
        return Peek::Moved;
    };
    let (Some((first, second)), Some(account)) = (record.plain(), scratch.account(place)) else {
        return Peek::Moved;
    };
    if record.is_unlimited() || record.budget != 0 || !drops(record) && !is_alone(scratch) {
        return Peek::Moved;
    }
    let old = bucket.first().load();
    if old & 1 != u64::from(resolved.scale()) {
        return Peek::Moved;
    }
    // If more than a drop follows.
    let over = if drops(record) { Peek::Over } else { Peek::Moved };
    let recent = scratch.now();
    let tat = Ticks::new_within(old >> 1);
    let rate = first.rate();
    let size = scratch.size::<W>();
    let is_super_frame = size.is_super_frame();
    let units = first.plain_units(size);
    let later = gcra::Charge::of_units(&rate, recent.plus(SLACK), units, is_super_frame);
    account.rule.set(record.rule);
    // It has long been over the limit, so the exact time does not matter.
    if later.is_over_until_now(tat) {
        bucket.touch(recent);
        return over;
    }
    let now = read_clock(maps, scratch);
    bucket.touch(now);
    let Some(next) = later.at(&rate, now, is_super_frame).apply(tat) else {
        return over;
    };
    account.slot.set(resolved.slot().index() << 1 | u32::from(resolved.scale()));
    account.charges.set(0);
    account.limits.set(1);
    scratch.note(place, Charge::Word(FIRST), old, next.get() << 1 | old & 1);
    if second.is_some() {
        account.limits.set(2);
        return match call!(plan_second(maps, scratch; bucket, place)) {
            Peek::Over => over,
            peek => peek,
        };
    }
    Peek::Conforming
}

/// Checks the second limit of a full key, and stores the exchange that charges it.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn plan_second<W: Maps>(maps: &W, scratch: &Scratch, bucket: &W::Keyed, place: u32) -> Peek {
    let Some(account) = scratch.account(place) else {
        return Peek::Moved;
    };
    let (slot, scale) = account.target();
    match maps.record(slot) {
        Some(Record { limits: [_, second, ..], .. }) => {
            let limit = (SECOND, second, || scratch.size::<W>());
            plan_plain(scratch, &bucket.second(), limit, scale, place)
        }
        None => Peek::Moved,
    }
}

/// The rule of a full key, after the check.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn rule(scratch: &Scratch, place: u32) -> u32 {
    scratch.account(place).map_or(RULE_NONE, |account| account.rule.get())
}

/// Charges a full key and counts the packet. If it is dropped or must start again, the earlier
/// charges are undone.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn charge_full<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    bucket: &W::Keyed,
    place: u32,
) -> Result<(), Option<Packed>> {
    let Some(account) = scratch.account(place) else {
        return Err(None);
    };
    let [first, second, ..] = &account.undos;
    let (_, old, new) = first.get();
    let first_charged = bucket.first().compare_exchange(old, new);
    let mut all_charged = first_charged;
    if first_charged && account.limits.get() > 1 {
        let (_, old, new) = second.get();
        all_charged = bucket.second().compare_exchange(old, new);
    }
    if !all_charged {
        let outcome = call!(charge_others(maps, scratch; bucket, place, first_charged));
        if outcome.is_some() || account.limits.get() == 0 {
            return Err(outcome);
        }
    }
    maps.count_rule(account.rule.get(), Reason::Conforming, scratch.size::<W>(), true);
    bucket.count(true, scratch.size::<W>().packets());
    Ok(())
}

/// Charges the rest of a full key after another CPU was faster: the second limit, and the first
/// one if it is not charged yet. Returns the outcome of a dropped packet; `None` for one that
/// passes, or starts again: then the account has no limits left.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn charge_others<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    bucket: &W::Keyed,
    place: u32,
    first_charged: bool,
) -> Option<Packed> {
    let account = scratch.account(place)?;
    account.charges.set(u32::from(first_charged));
    let mut charged = Charged::Conforming;
    if !first_charged {
        charged = repeat(|| call!(attempt_one(maps, scratch; bucket, place, FIRST)));
    }
    if account.limits.get() > 1 && matches!(charged, Charged::Conforming) {
        charged = repeat(|| call!(attempt_one(maps, scratch; bucket, place, SECOND)));
    }
    let over = match charged {
        Charged::Conforming => return None,
        Charged::Over => true,
        Charged::Contended | Charged::Moved => false,
    };
    call!(fail_full(maps, scratch; bucket, place, over))
}

/// Tries once to charge a limit of a full key, and records in the account how to undo that.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn attempt_one<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    bucket: &W::Keyed,
    place: u32,
    number: u32,
) -> Charged {
    let Some(account) = scratch.account(place) else {
        return Charged::Moved;
    };
    let (slot, scale) = account.target();
    let Some(Record { limits: [first, second, ..], .. }) = maps.record(slot) else {
        return Charged::Moved;
    };
    let size = || scratch.size::<W>();
    if number == FIRST {
        attempt_plain(scratch, &bucket.first(), (FIRST, first, size), scale, place)
    } else {
        attempt_plain(scratch, &bucket.second(), (SECOND, second, size), scale, place)
    }
}

/// Undoes the charges and counts of a packet that lost the race at a full key. Returns its outcome;
/// `None` if it starts again.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn fail_full<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    bucket: &W::Keyed,
    place: u32,
    over: bool,
) -> Option<Packed> {
    limit::give_back(maps, scratch, bucket, place);
    if is_alone(scratch) {
        if let Some(account) = scratch.account(place) {
            account.limits.set(0);
        }
        return None;
    }
    bucket.count(false, scratch.size::<W>().packets());
    let mut rounds = Rounds::new();
    while let Some(before) = rounds.next(u64::from(MAX_TABLES)) {
        if before >= place {
            break;
        }
        call!(undo_full(maps, scratch; before));
    }
    if scratch.compact_keys.get() != 0 {
        call!(undo_compact(maps, scratch; scratch.compact_keys.get()));
    }
    if scratch.sources.get() != 0 {
        undo_source(maps, scratch);
    }
    let reason = if over { Reason::OverLimit } else { Reason::Contended };
    Some(Outcome::new(reason, rule(scratch, place)).pack())
}

/// Undoes the charges and the counts of a full key.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn undo_full<W: Maps>(maps: &W, scratch: &Scratch, place: u32) {
    maps.count_rule(rule(scratch, place), Reason::Conforming, scratch.size::<W>(), false);
    if let Some(key) = scratch.key(scratch.unknown(place))
        && let Some(bucket) = maps.keyed(key)
    {
        bucket.count(true, scratch.size::<W>().packets().wrapping_neg());
        limit::give_back(maps, scratch, &bucket, place);
    }
}
