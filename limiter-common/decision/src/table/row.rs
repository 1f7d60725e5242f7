//! The short way of a packet that is in several tables, each of which has a bucket for it and one
//! plain limit: one look-up a table, then an exchange for each. The order is that of the long way,
//! [`super::run_tables`]: look everywhere, charge the source, charge everywhere. Tables where the
//! key of the packet is narrow ([`super::narrow`]) are looked at after the others, and charged
//! before them.
//!
//! The tables that the packet is in stand in a *row*, without those that it is not in. So the
//! verifier walks one way for each length of the row, and not one for each choice of tables. Keys
//! and accounts in the scratch go by the place in the row.

use limiter_common::bucket::{Resolved, Slot};
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{MAX_TABLES, RULE_NONE, Record};

use super::key::{key_in, put};
use super::limit;
use super::narrow_row::{charge_narrow, look_narrow, undo_narrow};
use super::plain::FIRST;
use super::run::{charge_source, each};
use super::scratch::{Charge, Scratch};
use super::short::{ChargePlace, charge_others, drops};
use super::undo::undo_source;
use super::weight::passed;
use crate::cell::Cell;
use crate::gcra;
use crate::meter::{Charged, Peek};
use crate::outcome::{Outcome, Packed};
use crate::rounds::Rounds;
use crate::step::step;
use crate::world::{Keyed, World};

/// Judges a packet that [`super::judge_shortly`] found in several tables; none where it has to go
/// the long way, with nothing charged and nothing counted.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn judge_row<W: World>(maps: &W, scratch: &Scratch) -> Option<Packed> {
    if scratch.wide.get() == 0 {
        return None;
    }
    let length = step!(line_up(maps, scratch;));
    if length == LONG {
        return None;
    }
    let mut buckets: [Option<W::Keyed>; MAX_TABLES as usize] =
        [None, None, None, None, None, None, None, None];
    each!('look, buckets, length, |bucket, place| {
        *bucket = find(maps, scratch, place);
        let Some(bucket) = bucket else {
            return None;
        };
        match step!(look_in_row(maps, scratch; bucket, place)) {
            Peek::Conforming => {}
            Peek::Over => {
                bucket.count(false, true);
                return Some(Outcome::new(Reason::OverLimit, rule(scratch, place)).pack());
            }
            Peek::Moved => return None,
        }
    });
    let has_narrow = scratch.narrow.get() != 0;
    if has_narrow {
        let outcome = step!(look_narrow(maps, scratch;));
        if outcome.is_some() {
            return outcome;
        }
    }
    if let Err(outcome) = charge_source(maps, scratch) {
        return outcome;
    }
    if has_narrow {
        let outcome = step!(charge_narrow(maps, scratch; 0_u32));
        if outcome.is_some() {
            return outcome;
        }
    }
    each!('charge, buckets, length, |bucket, place| {
        let Some(bucket) = bucket else {
            return None;
        };
        if !exchange(scratch, bucket, place) {
            let charged = step!(charge_in_row(maps, scratch; bucket, place));
            if !matches!(charged, Charged::Conforming) {
                let over = matches!(charged, Charged::Over);
                return Some(step!(fail_in_row(maps, scratch; bucket, place, over)));
            }
        }
        maps.count_rule(rule(scratch, place), Reason::Conforming, scratch.length(), true);
        bucket.count(true, true);
    });
    Some(passed(Packed::from_raw(scratch.source_outcome.get())))
}

/// The rule of the packet at a place of the row, after the look.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn rule(scratch: &Scratch, place: u32) -> u32 {
    scratch.account(place).map_or(RULE_NONE, |account| account.rule.get())
}

/// The number of keys of a packet that has to go the long way.
const LONG: u32 = u32::MAX;

/// Leaves the keys of the packet in the scratch, one after the other, but for the narrow ones; the
/// number of them. `LONG` where a table has to be asked the long way.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn line_up<W: World>(maps: &W, scratch: &Scratch) -> u32 {
    let wide = scratch.wide.get();
    let mut length = 0;
    let mut rounds = Rounds::new();
    while let Some(index) = rounds.next(u64::from(MAX_TABLES)) {
        if wide >> index & 1 == 0 {
            continue;
        }
        let Some(table) = maps.table(scratch.generation(), index) else {
            return LONG;
        };
        let [range, ..] = &table.ranges;
        if table.fixed != Slot::NONE.index() || range.is_some() {
            return LONG;
        }
        step!(set_key(maps, scratch; index, length));
        length += 1;
    }
    length
}

/// Leaves the key of the packet in a table at a place of the row. In the program, the name alone
/// where that is no hash.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn set_key<W: World>(maps: &W, scratch: &Scratch, index: u32, place: u32) {
    if let Some(table) = maps.table(scratch.generation(), index)
        && let Some(key) = scratch.key(scratch.unknown(place))
    {
        let key_facts = scratch.key_facts.get();
        #[cfg(target_arch = "bpf")]
        if let Some(name) = super::key::name_in(table, &scratch.facts, &key_facts) {
            return key.set_name(name);
        }
        put(maps, key, key_in(table, &scratch.facts, &key_facts));
    }
}

/// The bucket of the key at a place of the row.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn find<W: World>(maps: &W, scratch: &Scratch, place: u32) -> Option<W::Keyed> {
    maps.keyed(scratch.key(place)?)
}

/// Looks at the limit of a bucket, and leaves the exchange that charges it in the account;
/// [`Peek::Moved`] where the packet has to go the long way.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn look_in_row<W: World>(maps: &W, scratch: &Scratch, bucket: &W::Keyed, place: u32) -> Peek {
    let resolved = Resolved::from_raw(bucket.resolved().load());
    if resolved.is_converting() || !resolved.generation().covers(scratch.generation()) {
        return Peek::Moved;
    }
    let Some(record) = maps.record(resolved.slot()) else {
        return Peek::Moved;
    };
    let (Some((spec, None)), Some(account)) = (Record::plain(record), scratch.account(place))
    else {
        return Peek::Moved;
    };
    if record.is_unlimited() || record.budget != 0 || !drops(record) {
        return Peek::Moved;
    }
    let old = bucket.first().load();
    if old & 1 != u64::from(resolved.scale()) {
        return Peek::Moved;
    }
    let now = scratch.now();
    bucket.touch(now);
    account.rule.set(record.rule);
    account.slot.set(resolved.slot().index() << 1 | u32::from(resolved.scale()));
    account.charges.set(0);
    let charge = gcra::Charge::new(&spec.rate(), now, spec.plain_units(scratch.length()));
    let Some(tat) = charge.apply(Ticks::new_within(old >> 1)) else {
        return Peek::Over;
    };
    scratch.note(place, Charge::Word(FIRST), old, tat.get() << 1 | old & 1);
    Peek::Conforming
}

/// Charges a limit by the exchange that the look has left; false where another CPU was faster.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn exchange(scratch: &Scratch, bucket: &impl Keyed, place: u32) -> bool {
    let Some(account) = scratch.account(place) else {
        return false;
    };
    let [undo, ..] = &account.undos;
    let (_, old, new) = undo.get();
    bucket.first().compare_exchange(old, new)
}

/// Charges a limit that another CPU has charged since the look.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn charge_in_row<W: World>(
    maps: &W,
    scratch: &Scratch,
    bucket: &W::Keyed,
    place: u32,
) -> Charged {
    let Some(account) = scratch.account(place) else {
        return Charged::Moved;
    };
    account.charges.set(0);
    let (slot, scale) = account.target();
    charge_others(maps, scratch, bucket, ChargePlace::only(slot, scale, place))
}

/// Drops a packet that lost the race at a place of the row: takes back what was charged and counted
/// before it.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn fail_in_row<W: World>(
    maps: &W,
    scratch: &Scratch,
    bucket: &W::Keyed,
    place: u32,
    over: bool,
) -> Packed {
    bucket.count(false, true);
    let mut rounds = Rounds::new();
    while let Some(before) = rounds.next(u64::from(MAX_TABLES)) {
        if before >= place {
            break;
        }
        step!(undo_in_row(maps, scratch; before));
    }
    if scratch.narrow.get() != 0 {
        step!(undo_narrow(maps, scratch; scratch.narrow_keys.get()));
    }
    if scratch.sources.get() != 0 {
        undo_source(maps, scratch);
    }
    let reason = if over { Reason::OverLimit } else { Reason::Contended };
    Outcome::new(reason, rule(scratch, place)).pack()
}

/// Takes back the charge and the counts at a place of the row.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn undo_in_row<W: World>(maps: &W, scratch: &Scratch, place: u32) {
    maps.count_rule(rule(scratch, place), Reason::Conforming, scratch.length(), false);
    if let Some(bucket) = find(maps, scratch, scratch.unknown(place)) {
        bucket.count(true, false);
        limit::give_back(maps, scratch, &bucket, place);
    }
}
