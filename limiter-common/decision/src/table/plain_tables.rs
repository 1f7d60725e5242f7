//! The route of a packet in plain tables, which most are in: tables where its key has a bucket that
//! is up to date, and a rule of one or two plain limits. One look-up a table, then an exchange for
//! each limit. No account is kept, and most takes no step.
//!
//! The order is that of the general route, [`super::run_tables`]: look everywhere, charge the
//! source, charge everywhere. Tables where the key of the packet is narrow ([`super::narrow`]) are
//! looked at after the others, and charged before them. The general route is for the rest: keys
//! without a bucket or with one that is not up to date, other limits, ranges, flows, and what
//! follows from a limit other than a drop. Nothing is charged or counted then.
//!
//! The buckets are kept from the look to the charge, in places without gaps. So the verifier walks
//! one way for each number of them, and not one for each choice of tables, and every place is a
//! constant, which it follows a pointer to. Narrow keys beside wide ones are looked up again.

use limiter_common::bucket::{Resolved, Slot};
use limiter_common::owner::Owner;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{MAX_TABLES, RULE_NONE, Record};

use super::clock::read_clock;
use super::key::{in_bit, key_in, name_in, put};
use super::limit;
use super::narrow::{narrow_bit, narrow_in};
use super::narrow_row::{self, charge_narrow, look_narrow, undo_narrow};
use super::plain::{FIRST, SECOND, attempt_plain, peek_plain};
use super::run::charge_source;
use super::scratch::{Charge, NarrowCharge, Scratch};
use super::undo::undo_source;
use super::weight::passed;
use crate::cell::Cell;
use crate::clock::SLACK;
use crate::engine::source::{count_drop, count_over, find_narrow};
use crate::gcra;
use crate::meter::{Charged, Peek, repeat};
use crate::outcome::{NO_REASON, Outcome, Packed};
use crate::register::Register;
use crate::rounds::Rounds;
use crate::step::step;
use crate::stored::{StoredIn, either};
use crate::world::{Kept, Keyed, World};

/// Runs a block for each place, unrolled.
macro_rules! each {
    ($label:lifetime, |$place:ident| $body:block) => {
        each!($label, |$place| $body, 0 1 2 3 4 5 6 7)
    };
    ($label:lifetime, |$place:ident| $body:block, $($number:literal)*) => {
        $label: {
            $({
                const $place: u32 = $number;
                $body
            })*
        }
    };
}

/// Keeps a bucket at a place, which is a constant.
macro_rules! put_at {
    ($kept:ident, $place:expr, $bucket:expr) => {
        if let Some(kept) = $kept.get_mut(($place) as usize) {
            *kept = Some($bucket);
        }
    };
}

/// Takes what is kept at a place, which is a constant.
macro_rules! take_at {
    ($kept:ident, $place:expr) => {
        $kept.get_mut(($place) as usize).and_then(Option::take)
    };
}

/// The tables that a packet is in.
#[derive(Clone, Copy)]
pub struct Row {
    /// The indices of those where its key is wide, one after the other: four bits each.
    wide: u32,
    /// The number of these.
    wides: u32,
}

impl Row {
    const NONE: Self = Self { wide: 0, wides: 0 };
}

/// The number of wide keys of a packet that goes the general route.
const GENERAL: u32 = MAX_TABLES + 1;

/// `wides:8 | wide:32`.
impl Register for Row {
    const LOST: Self = Self { wides: GENERAL, ..Self::NONE };

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn to_register(self) -> u64 {
        let Self { wide, wides } = self;
        u64::from(wides) << 32 | u64::from(wide)
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn of_register(register: u64) -> Self {
        Self { wide: (register & 0xffff_ffff) as u32, wides: (register >> 32 & 0xf) as u32 }
    }
}

/// The end of [`judge_narrow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Narrow {
    /// The packet is judged.
    Judged(Packed),
    /// Another CPU was faster at the narrow key at a place: what is charged before stays.
    Overtaken(u32),
    /// The packet has to go the general route. Nothing is charged, and nothing is counted.
    General,
}

impl Register for Narrow {
    const LOST: Self = Self::General;

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn to_register(self) -> u64 {
        match self {
            Self::Judged(outcome) => outcome.raw(),
            Self::Overtaken(place) => NO_REASON | (u64::from(place) + 1) << 32,
            Self::General => NO_REASON,
        }
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn of_register(register: u64) -> Self {
        if register & 0xff != NO_REASON {
            return Self::Judged(Packed::from_raw(register));
        }
        match register >> 32 {
            0 => Self::General,
            place => Self::Overtaken((place & 0xff) as u32 - 1),
        }
    }
}

impl From<Option<Packed>> for Narrow {
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn from(outcome: Option<Packed>) -> Self {
        outcome.map_or(Self::General, Self::Judged)
    }
}

/// Judges a packet whose facts are in the scratch, by `tables` tables and by the source table; none
/// where it has to go the general route, with nothing charged and nothing counted. The packet may
/// have come up to [`SLACK`] after the time in the scratch.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn judge_plain<W: World>(maps: &W, scratch: &Scratch, tables: u32) -> Option<Packed> {
    let row = step!(line_up(maps, scratch; tables));
    if row.wides != 0 {
        return step!(judge_wide(maps, scratch; row));
    }
    match step!(judge_narrow(maps, scratch;)) {
        Narrow::Judged(outcome) => Some(outcome),
        Narrow::Overtaken(place) => {
            if place > 0 {
                scratch.conforms();
            }
            let outcome = step!(charge_narrow(maps, scratch; place));
            Some(outcome.unwrap_or_else(|| Packed::from_raw(scratch.source_outcome.get())))
        }
        Narrow::General => None,
    }
}

/// [`judge_plain`] of a packet without wide keys.
#[expect(clippy::absurd_extreme_comparisons, reason = "the first place is 0")]
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn judge_narrow<W: World>(maps: &W, scratch: &Scratch) -> Narrow {
    let narrows = scratch.narrow_keys.get();
    let mut kept: [Option<W::Kept>; MAX_TABLES as usize] =
        [None, None, None, None, None, None, None, None];
    each!('look, |PLACE| {
        if PLACE >= narrows {
            break 'look;
        }
        match look_at_once(maps, scratch, PLACE) {
            Ok(bucket) => put_at!(kept, PLACE, W::Kept::of(bucket)),
            Err(outcome) => return outcome.into(),
        }
    });
    if let Err(outcome) = charge_source(maps, scratch) {
        return outcome.into();
    }
    each!('charge, |PLACE| {
        if PLACE >= narrows {
            break 'charge;
        }
        let Some(bucket) = take_at!(kept, PLACE) else {
            return Narrow::General;
        };
        if !exchange_narrow::<W>(maps, scratch, bucket, PLACE) {
            return Narrow::Overtaken(PLACE);
        }
    });
    let outcome = Packed::from_raw(scratch.source_outcome.get());
    Narrow::Judged(if narrows == 0 { outcome } else { passed(outcome) })
}

/// [`judge_plain`] of a packet with wide keys.
#[expect(clippy::absurd_extreme_comparisons, reason = "the first place is 0")]
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn judge_wide<W: World>(maps: &W, scratch: &Scratch, row: Row) -> Option<Packed> {
    let Row { wide, wides } = row;
    if wides == GENERAL {
        return None;
    }
    let mut kept: [Option<W::Keyed>; MAX_TABLES as usize] =
        [None, None, None, None, None, None, None, None];
    each!('look, |PLACE| {
        if PLACE >= wides {
            break 'look;
        }
        match look_wide(maps, scratch, wide >> (4 * PLACE) & 7, PLACE) {
            Ok(bucket) => put_at!(kept, PLACE, bucket),
            Err(outcome) => return outcome,
        }
    });
    let has_narrow = scratch.narrow_keys.get() != 0;
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
    each!('charge, |PLACE| {
        if PLACE >= wides {
            break 'charge;
        }
        let bucket = take_at!(kept, PLACE)?;
        if let Err(outcome) = charge_wide(maps, scratch, &bucket, PLACE) {
            return outcome;
        }
    });
    Some(passed(Packed::from_raw(scratch.source_outcome.get())))
}

/// Finds the tables that a packet is in, and leaves its narrow keys in the scratch; the general
/// route if its flow counts. Without a branch for what a packet is in, after which the verifier
/// would walk on for each choice.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn line_up<W: World>(maps: &W, scratch: &Scratch, tables: u32) -> Row {
    scratch.is_recent();
    let general = Row { wides: GENERAL, ..Row::NONE };
    if scratch.flows.get() != 0 {
        return general;
    }
    let key_facts = scratch.key_facts.get();
    let mut row = Row::NONE;
    let (mut mask, mut narrows) = (0, 0);
    let mut rounds = Rounds::new();
    while let Some(index) = rounds.next(u64::from(MAX_TABLES)) {
        if index >= tables {
            break;
        }
        let (Some(table), Some(word)) =
            (maps.table(scratch.generation(), index), scratch.narrow_key(scratch.unknown(narrows)))
        else {
            return general;
        };
        let is_in = in_bit(table, &key_facts);
        let is_narrow = is_in & narrow_bit(table, &key_facts);
        let is_wide = is_in ^ is_narrow;
        // If this one is not narrow, the next one overwrites it.
        word.set(narrow_in(table, &scratch.facts, &key_facts).word());
        row.wide |= (index & is_wide.wrapping_neg()) << ((row.wides & 7) * 4);
        row.wides += is_wide;
        narrows += is_narrow;
        mask |= is_narrow << index;
    }
    scratch.narrow.set(mask);
    scratch.narrow_keys.set(narrows);
    scratch.wide_keys.set(row.wides);
    row
}

/// Looks at the limit of a narrow key, and leaves the exchange that charges it; its bucket. An
/// error ends the route: the outcome of a packet that is over the limit, which is counted, or none.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn look_at_once<W: World>(
    maps: &W,
    scratch: &Scratch,
    place: u32,
) -> Result<StoredIn<W>, Option<Packed>> {
    let (Some(word), Some(left)) = (scratch.narrow_key(place), scratch.narrow_charge(place)) else {
        return Err(None);
    };
    let Some(bucket) = find_narrow(maps, word) else {
        return Err(None);
    };
    let is_first = place == 0;
    let look = either!(&bucket, bucket => narrow_row::look(maps, scratch, bucket, is_first));
    let Some(narrow_row::Look { exchange, rule }) = look else {
        return Err(None);
    };
    let Some(change) = exchange else {
        #[cfg(not(target_arch = "bpf"))]
        scratch.stop_in_row(place);
        if is_first {
            let owner = Owner::narrow(word.get());
            either!(&bucket, bucket => count_drop(maps, &owner, bucket));
        } else {
            // Not at once, of which the verifier would walk every way for each place.
            step!(count_over(maps; &Owner::narrow(word.get())));
        }
        return Err(Some(Outcome::new(Reason::OverLimit, rule).pack()));
    };
    left.set(NarrowCharge { change, rule, ..NarrowCharge::none() });
    Ok(bucket)
}

/// Charges a narrow key by the exchange that the look has left, and counts the packet; false where
/// another CPU was faster.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn exchange_narrow<W: World>(maps: &W, scratch: &Scratch, kept: W::Kept, place: u32) -> bool {
    let (Some(word), Some(charge)) = (scratch.narrow_key(place), scratch.narrow_charge(place))
    else {
        return false;
    };
    let owner = Owner::narrow(word.get());
    let Some(bucket) = kept.bucket(&owner) else {
        return false;
    };
    let charge = charge.get();
    either!(&bucket, bucket => narrow_row::exchange(maps, scratch, &owner, bucket, charge))
}

/// Looks at the limits of a wide key, and leaves the exchange that charges the first one in the
/// account; its bucket. An error ends the route, as in [`look_at_once`].
#[cfg_attr(target_arch = "bpf", inline(always))]
fn look_wide<W: World>(
    maps: &W,
    scratch: &Scratch,
    index: u32,
    place: u32,
) -> Result<W::Keyed, Option<Packed>> {
    match find_wide(maps, scratch, index, place) {
        Some(bucket) => match step!(look_at_wide(maps, scratch; &bucket, place)) {
            Peek::Conforming => Ok(bucket),
            Peek::Over => {
                bucket.count(false, true);
                Err(Some(Outcome::new(Reason::OverLimit, rule(scratch, place)).pack()))
            }
            Peek::Moved => Err(None),
        },
        None => Err(None),
    }
}

/// The bucket of the packet's key in a table, if it has one and its name is found without ranges.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn find_wide<W: World>(maps: &W, scratch: &Scratch, index: u32, place: u32) -> Option<W::Keyed> {
    let table = maps.table(scratch.generation(), index)?;
    let [range, ..] = &table.ranges;
    if table.fixed != Slot::NONE.index() || range.is_some() {
        return None;
    }
    step!(set_key(maps, scratch; index, place));
    maps.keyed(scratch.key(place)?)
}

/// Leaves the key of the packet in a table at a place. In the program, the name alone where that is
/// no hash.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn set_key<W: World>(maps: &W, scratch: &Scratch, index: u32, place: u32) {
    if let Some(table) = maps.table(scratch.generation(), index)
        && let Some(key) = scratch.key(scratch.unknown(place))
    {
        let key_facts = scratch.key_facts.get();
        #[cfg(target_arch = "bpf")]
        if let Some(name) = name_in(table, &scratch.facts, &key_facts) {
            return key.set_name(name);
        }
        put(maps, key, key_in(table, &scratch.facts, &key_facts));
        // On the host, buckets are found by the keys themselves.
        #[cfg(not(target_arch = "bpf"))]
        debug_assert!(
            name_in(table, &scratch.facts, &key_facts)
                .is_none_or(|name| name == key.get().name(|| 0)),
            "the name of {:?}",
            key.get()
        );
    }
}

/// True if nothing but a drop follows for a packet that is over a limit of a record.
#[cfg_attr(target_arch = "bpf", inline(always))]
const fn drops(record: &Record) -> bool {
    !record.is_shadow(true) && record.action == 0
}

/// True if the packet is in one table, where its key is wide, and in no other one: one that loses
/// the race there can begin again.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn is_alone(scratch: &Scratch) -> bool {
    scratch.sources.get() == 0 && scratch.narrow_keys.get() == 0 && scratch.wide_keys.get() == 1
}

/// The look at the wide key of a bucket; [`Peek::Moved`] where the packet has to go the general
/// route.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn look_at_wide<W: World>(maps: &W, scratch: &Scratch, bucket: &W::Keyed, place: u32) -> Peek {
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
    // Where more than a drop follows.
    let over = if drops(record) { Peek::Over } else { Peek::Moved };
    let recent = scratch.now();
    let tat = Ticks::new_within(old >> 1);
    let rate = first.rate();
    let later = gcra::Charge::new(&rate, recent.plus(SLACK), first.plain_units(scratch.length()));
    account.rule.set(record.rule);
    // Over the limit for long: then the time does not matter.
    if later.is_over_until_now(tat) {
        bucket.touch(recent);
        return over;
    }
    let now = read_clock(maps, scratch);
    bucket.touch(now);
    let Some(next) = later.at(&rate, now).apply(tat) else {
        return over;
    };
    account.slot.set(resolved.slot().index() << 1 | u32::from(resolved.scale()));
    account.charges.set(0);
    account.limits.set(1);
    scratch.note(place, Charge::Word(FIRST), old, next.get() << 1 | old & 1);
    if second.is_some() {
        account.limits.set(2);
        return match step!(peek_second(maps, scratch; bucket, place)) {
            Peek::Over => over,
            peek => peek,
        };
    }
    Peek::Conforming
}

/// Looks at the second limit of a wide key.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn peek_second<W: World>(maps: &W, scratch: &Scratch, bucket: &W::Keyed, place: u32) -> Peek {
    let Some(account) = scratch.account(place) else {
        return Peek::Moved;
    };
    let (slot, scale) = account.target();
    match maps.record(slot) {
        Some(Record { limits: [_, second, ..], .. }) => {
            peek_plain(scratch, &bucket.second(), second, scale)
        }
        None => Peek::Moved,
    }
}

/// The rule of a wide key, after the look.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn rule(scratch: &Scratch, place: u32) -> u32 {
    scratch.account(place).map_or(RULE_NONE, |account| account.rule.get())
}

/// Charges a wide key, and counts the packet; where it is dropped, or has to begin again, what was
/// charged before is taken back.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn charge_wide<W: World>(
    maps: &W,
    scratch: &Scratch,
    bucket: &W::Keyed,
    place: u32,
) -> Result<(), Option<Packed>> {
    let Some(account) = scratch.account(place) else {
        return Err(None);
    };
    let [undo, ..] = &account.undos;
    let (_, old, new) = undo.get();
    let is_charged = bucket.first().compare_exchange(old, new);
    if !is_charged || account.limits.get() > 1 {
        let outcome = step!(charge_others(maps, scratch; bucket, place, is_charged));
        if outcome.is_some() || account.limits.get() == 0 {
            return Err(outcome);
        }
    }
    maps.count_rule(account.rule.get(), Reason::Conforming, scratch.length(), true);
    bucket.count(true, true);
    Ok(())
}

/// Charges what is not charged yet of a wide key: the second limit, and the first one where another
/// CPU was faster. The outcome of a packet that is dropped; none for one that passes, or begins
/// again: then the account has no limits left.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn charge_others<W: World>(
    maps: &W,
    scratch: &Scratch,
    bucket: &W::Keyed,
    place: u32,
    first_charged: bool,
) -> Option<Packed> {
    let account = scratch.account(place)?;
    let mut charged = Charged::Conforming;
    if !first_charged {
        account.charges.set(0);
        charged = repeat(|| step!(attempt_one(maps, scratch; bucket, place, FIRST)));
    }
    if account.limits.get() > 1 && matches!(charged, Charged::Conforming) {
        charged = repeat(|| step!(attempt_one(maps, scratch; bucket, place, SECOND)));
    }
    let over = match charged {
        Charged::Conforming => return None,
        Charged::Over => true,
        Charged::Contended | Charged::Moved => false,
    };
    step!(fail_wide(maps, scratch; bucket, place, over))
}

/// Tries once to charge a limit of a wide key, and notes in the account how to take that back.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn attempt_one<W: World>(
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
    if number == FIRST {
        attempt_plain(scratch, &bucket.first(), FIRST, first, scale, place)
    } else {
        attempt_plain(scratch, &bucket.second(), SECOND, second, scale, place)
    }
}

/// Takes back what was charged and counted, of a packet that lost the race at a wide key: its
/// outcome, none if it begins again.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn fail_wide<W: World>(
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
    bucket.count(false, true);
    let mut rounds = Rounds::new();
    while let Some(before) = rounds.next(u64::from(MAX_TABLES)) {
        if before >= place {
            break;
        }
        step!(undo_wide(maps, scratch; before));
    }
    if scratch.narrow_keys.get() != 0 {
        step!(undo_narrow(maps, scratch; scratch.narrow_keys.get()));
    }
    if scratch.sources.get() != 0 {
        undo_source(maps, scratch);
    }
    let reason = if over { Reason::OverLimit } else { Reason::Contended };
    Some(Outcome::new(reason, rule(scratch, place)).pack())
}

/// Takes back the charges and the counts of a wide key.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn undo_wide<W: World>(maps: &W, scratch: &Scratch, place: u32) {
    maps.count_rule(rule(scratch, place), Reason::Conforming, scratch.length(), false);
    if let Some(key) = scratch.key(scratch.unknown(place))
        && let Some(bucket) = maps.keyed(key)
    {
        bucket.count(true, false);
        limit::give_back(maps, scratch, &bucket, place);
    }
}
