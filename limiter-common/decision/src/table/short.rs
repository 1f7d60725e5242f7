//! The short way of a packet that is in one table or in none, which most are: one look-up of its
//! bucket, one or two plain limits, an exchange for each. No account is kept, and the first limit
//! takes no step.
//!
//! The long way, [`super::run_tables`], is for the rest: packets in several tables, keys without a
//! bucket or with one that is not up to date, limits that are not plain, actions, shadow mode,
//! flows. Nothing is changed then, or it is given back, as there.

use limiter_common::bucket::MAX_SLOTS;
use limiter_common::bucket::{Resolved, Slot};
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{LimitSpec, MAX_TABLES, Record, Table};

use super::key::{in_bit, name_in};
#[cfg(not(target_arch = "bpf"))]
use super::key::{key_in, put};
use super::key_cell::KeyCell;
use super::limit;
use super::narrow::narrow_bit;
use super::plain::{FIRST, SECOND, attempt_plain, peek_plain};
use super::run::judge_source;
use super::scratch::{ACCOUNTS, Charge, Scratch};
use super::undo::undo_source;
use super::weight::passed;
use crate::cell::Cell;
use crate::clock::SLACK;
use crate::gcra;
use crate::meter::{Charged, Peek, repeat};
use crate::outcome::{Outcome, Packed};
use crate::register::Register;
use crate::rounds::Rounds;
use crate::step::step;
use crate::world::{Keyed, World};

/// Judges a packet whose facts are in the scratch, by `tables` tables and by the source table; none
/// where it has to go another way. The packet may have come up to [`SLACK`] after the time in the
/// scratch, which is exact for the other ways but [`super::judge_narrow`].
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn judge_shortly<W: World>(maps: &W, scratch: &Scratch, tables: u32) -> Option<Packed> {
    let recent = scratch.now();
    scratch.narrow.set(0);
    scratch.wide.set(0);
    let outcome = match tables_of(maps, scratch, tables) {
        Some(Within { narrow: 0, wide: 0, .. }) => judge_by_source(maps, scratch),
        Some(Within { narrow: 0, wide, last }) if wide.is_power_of_two() => {
            judge_in(maps, scratch, last, recent)
        }
        Some(Within { narrow, wide, last }) => {
            scratch.narrow.set(narrow);
            scratch.last.set(last);
            scratch.wide.set(wide);
            None
        }
        None => None,
    };
    if outcome.is_none() {
        if scratch.narrow.get() != 0 && scratch.wide.get() == 0 {
            scratch.is_recent();
        } else {
            scratch.set_now(maps.now(recent));
        }
    }
    outcome
}

/// The place of the key and of the account in the scratch, whatever the table: there is no other
/// one.
const ONLY: u32 = 0;

/// The tables that a packet is in: bit n for table n.
#[derive(Clone, Copy)]
struct Within {
    /// Tables where its key is narrow.
    narrow: u32,
    /// All others.
    wide: u32,
    /// The index of the last one.
    last: u32,
}

/// Finds the tables that a packet is in; none if its flow counts, or a table is not there. Without
/// a branch for what a packet is in, after which the verifier would walk on for each choice.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn tables_of<W: World>(maps: &W, scratch: &Scratch, tables: u32) -> Option<Within> {
    if scratch.flows.get() != 0 {
        return None;
    }
    let key_facts = scratch.key_facts.get();
    let (mut narrow, mut wide, mut last) = (0, 0, 0);
    let mut rounds = Rounds::new();
    while let Some(index) = rounds.next(u64::from(MAX_TABLES)) {
        if index >= tables {
            break;
        }
        let table = maps.table(scratch.generation(), index)?;
        let is_in = in_bit(table, &key_facts);
        let is_narrow = is_in & narrow_bit(table, &key_facts);
        narrow |= is_narrow << index;
        wide |= (is_in ^ is_narrow) << index;
        last = index & is_in.wrapping_neg() | last & is_in.wrapping_sub(1);
    }
    Some(Within { narrow, wide, last })
}

/// Judges a packet that is in no table. The source table reads the clock itself, if it has to.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn judge_by_source<W: World>(maps: &W, scratch: &Scratch) -> Option<Packed> {
    if scratch.sources.get() == 0 {
        return Some(Outcome::without_rule(Reason::NoRule).pack());
    }
    let outcome = judge_source(maps, scratch);
    // Deferred: the action is still to be carried out, and nothing was counted.
    if outcome.is_deferred() { None } else { Some(outcome) }
}

/// Judges a packet by the only table that it is in, and by the source table.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn judge_in<W: World>(maps: &W, scratch: &Scratch, index: u32, recent: Ticks) -> Option<Packed> {
    let generation = scratch.generation();
    let table = maps.table(generation, index)?;
    let [range, ..] = &table.ranges;
    if table.fixed != Slot::NONE.index() || range.is_some() {
        return None;
    }
    let key = scratch.key(ONLY)?;
    let bucket = find(maps, key, table, scratch)?;
    let resolved = Resolved::from_raw(bucket.resolved().load());
    if resolved.is_converting() || !resolved.generation().covers(generation) {
        return None;
    }
    let record = maps.record(resolved.slot())?;
    if record.is_unlimited() || record.budget != 0 {
        return None;
    }
    let (first, second) = record.plain()?;
    // A number, and no pointer that may be there or not: the verifier would follow both.
    let place = ChargePlace {
        has_second: scratch.unknown(u32::from(second.is_some())) != 0,
        ..ChargePlace::only(resolved.slot(), resolved.scale(), ONLY)
    };
    let first = Look::new(first, &bucket.first(), scratch, place.scale, recent.plus(SLACK))?;
    // Over the limit for long: then the time does not matter.
    if first.is_over() {
        bucket.touch(recent);
        return dropped(record, &bucket);
    }
    let now = maps.now(recent);
    scratch.set_now(now);
    bucket.touch(now);
    let Some(first) = first.charged(now) else {
        return dropped(record, &bucket);
    };
    if place.has_second {
        match step!(peek_second(maps, scratch; &bucket, place)) {
            Peek::Conforming => {}
            Peek::Over => return dropped(record, &bucket),
            Peek::Moved => return None,
        }
    }
    let has_sources = scratch.sources.get() != 0;
    let mut source = Outcome::without_rule(Reason::NoRule).pack();
    if has_sources {
        // The way of a packet that loses a race ends here once its source is charged, and that is a
        // drop.
        if !drops(record) {
            return None;
        }
        source = judge_source(maps, scratch);
        if source.is_deferred() {
            return None;
        }
        if source.drops() {
            return Some(source);
        }
    }
    let charged = charge(maps, scratch, &bucket, place, &first);
    if !matches!(charged, Charged::Conforming) {
        if !has_sources {
            return None;
        }
        undo_source(maps, scratch);
        let over = matches!(charged, Charged::Over);
        let reason = if over { Reason::OverLimit } else { Reason::Contended };
        return Some(drop_as(reason, record, &bucket));
    }
    maps.count_rule(record.rule, Reason::Conforming, scratch.length(), true);
    bucket.count(true, true);
    Some(passed(source))
}

/// The bucket of the packet's key in a table, if it has one and its name is no hash.
#[cfg(target_arch = "bpf")]
#[cfg_attr(target_arch = "bpf", inline(always))]
fn find<W: World>(maps: &W, key: &KeyCell, table: &Table, scratch: &Scratch) -> Option<W::Keyed> {
    key.set_name(name_in(table, &scratch.facts, &scratch.key_facts.get())?);
    maps.keyed_by_name(key)
}

/// The bucket of the packet's key in a table, if it has one and its name is no hash. On the host,
/// buckets are found by the keys themselves, and the name is held against theirs.
#[cfg(not(target_arch = "bpf"))]
fn find<W: World>(maps: &W, key: &KeyCell, table: &Table, scratch: &Scratch) -> Option<W::Keyed> {
    let key_facts = scratch.key_facts.get();
    let name = name_in(table, &scratch.facts, &key_facts)?;
    put(maps, key, key_in(table, &scratch.facts, &key_facts));
    debug_assert_eq!(name, key.get().name(|| 0), "the name of {:?}", key.get());
    maps.keyed_by_name(key)
}

/// True if nothing but a drop follows for a packet that is over a limit of a record.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) const fn drops(record: &Record) -> bool {
    !record.is_shadow(true) && record.action == 0
}

/// The outcome of a packet that is over a limit of a record; none where more than a drop follows.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn dropped(record: &Record, bucket: &impl Keyed) -> Option<Packed> {
    if drops(record) { Some(drop_as(Reason::OverLimit, record, bucket)) } else { None }
}

/// Counts a packet that is dropped.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn drop_as(reason: Reason, record: &Record, bucket: &impl Keyed) -> Packed {
    bucket.count(false, true);
    Outcome::new(reason, record.rule).pack()
}

/// The limits that a packet is charged to: their slot, and how far it is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargePlace {
    slot: Slot,
    /// The scale bit of their words.
    scale: bool,
    /// True if there are two.
    has_second: bool,
    /// True if the first one is charged.
    first_charged: bool,
    /// The account that says how to take the charges back.
    account: u32,
}

impl ChargePlace {
    /// One limit, which is not charged yet.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) const fn only(slot: Slot, scale: bool, account: u32) -> Self {
        Self { slot, scale, has_second: false, first_charged: false, account }
    }
}

/// Bits of a slot and of an account in the register of a [`ChargePlace`].
const SLOT: u64 = MAX_SLOTS as u64 - 1;
const ACCOUNT: u64 = ACCOUNTS as u64 - 1;

const _: () = assert!(MAX_SLOTS.is_power_of_two() && ACCOUNTS.is_power_of_two());

/// `account:4 | slot:19 | scale:1 | has_second:1 | first_charged:1`.
impl Register for ChargePlace {
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn to_register(self) -> u64 {
        let Self { slot, scale, has_second, first_charged, account } = self;
        u64::from(account) << 22
            | u64::from(slot.index()) << 3
            | u64::from(scale) << 2
            | u64::from(has_second) << 1
            | u64::from(first_charged)
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn of_register(register: u64) -> Self {
        Self {
            slot: Slot::new((register >> 3 & SLOT) as u32),
            scale: register & 4 != 0,
            has_second: register & 2 != 0,
            first_charged: register & 1 != 0,
            account: (register >> 22 & ACCOUNT) as u32,
        }
    }
}

/// Charges the limits, all or none.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn charge<W: World>(
    maps: &W,
    scratch: &Scratch,
    bucket: &W::Keyed,
    place: ChargePlace,
    first: &Exchange,
) -> Charged {
    let first_charged = bucket.first().compare_exchange(first.old, first.new);
    if first_charged && !place.has_second {
        return Charged::Conforming;
    }
    if let Some(account) = scratch.account(ONLY) {
        account.charges.set(0);
    }
    if first_charged {
        scratch.note(ONLY, Charge::Word(FIRST), first.old, first.new);
    }
    step!(charge_others(maps, scratch; bucket, ChargePlace { first_charged, ..place }))
}

/// Looks at the second limit.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn peek_second<W: World>(
    maps: &W,
    scratch: &Scratch,
    bucket: &W::Keyed,
    place: ChargePlace,
) -> Peek {
    match maps.record(place.slot) {
        Some(Record { limits: [_, second, ..], .. }) => {
            peek_plain(scratch, &bucket.second(), second, place.scale)
        }
        None => Peek::Moved,
    }
}

/// Charges the limits that are not charged yet: the second one, and the first one where another CPU
/// was faster. All or none.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn charge_others<W: World>(
    maps: &W,
    scratch: &Scratch,
    bucket: &W::Keyed,
    place: ChargePlace,
) -> Charged {
    let mut charged = Charged::Conforming;
    if !place.first_charged {
        charged = repeat(|| step!(attempt_one(maps, scratch; bucket, place, FIRST)));
    }
    if place.has_second && matches!(charged, Charged::Conforming) {
        charged = attempt_one(maps, scratch, bucket, place, SECOND);
        if matches!(charged, Charged::Contended) {
            charged = repeat(|| step!(attempt_one(maps, scratch; bucket, place, SECOND)));
        }
        if !matches!(charged, Charged::Conforming) {
            limit::give_back(maps, scratch, bucket, place.account);
        }
    }
    charged
}

/// Tries once to charge a limit, and notes in the account how to take that back.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn attempt_one<W: World>(
    maps: &W,
    scratch: &Scratch,
    bucket: &W::Keyed,
    place: ChargePlace,
    number: u32,
) -> Charged {
    let Some(Record { limits: [first, second, ..], .. }) = maps.record(place.slot) else {
        return Charged::Moved;
    };
    if number == FIRST {
        attempt_plain(scratch, &bucket.first(), FIRST, first, place.scale, place.account)
    } else {
        attempt_plain(scratch, &bucket.second(), SECOND, second, place.scale, place.account)
    }
}

/// The look at a plain limit.
struct Look<'m> {
    spec: &'m LimitSpec,
    /// The word of the limit.
    old: u64,
    /// The charge at the latest time that it may be.
    charge: gcra::Charge,
}

/// The word of a limit before a charge and after it.
struct Exchange {
    old: u64,
    new: u64,
}

impl<'m> Look<'m> {
    /// Reads the word; none where it is of another limit.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn new(
        spec: &'m LimitSpec,
        word: &impl Cell,
        scratch: &Scratch,
        scale: bool,
        latest: Ticks,
    ) -> Option<Self> {
        let old = word.load();
        if old & 1 != u64::from(scale) {
            return None;
        }
        let charge = gcra::Charge::new(&spec.rate(), latest, spec.plain_units(scratch.length()));
        Some(Self { spec, old, charge })
    }

    /// True if the packet is over the limit at any time until the latest.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn is_over(&self) -> bool {
        self.charge.is_over_until_now(Ticks::new_within(self.old >> 1))
    }

    /// The charge at a time; none where the packet is over the limit.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn charged(&self, now: Ticks) -> Option<Exchange> {
        let tat = Ticks::new_within(self.old >> 1);
        let charge = self.charge.at(&self.spec.rate(), now);
        let new = charge.apply(tat)?.get() << 1 | self.old & 1;
        Some(Exchange { old: self.old, new })
    }
}
