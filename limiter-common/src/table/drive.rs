//! The order of things for one packet: look everywhere, then charge everywhere.

use core::hint::black_box;

use super::scratch::{Planned, REPAIR_KEY};
use super::{Code, Keyed, SOURCE_CLASS, Scratch, Tables, over};
use crate::bucket::{Generation, Slot};
use crate::engine::source::{self, Change};
use crate::engine::{Maps, Outcome, Packed};
use crate::rounds::Rounds;
use crate::source::Source;
use crate::time::Ticks;
use crate::verdict::Reason;
use crate::wire::{MAX_TABLES, RuleSetHeader, Table};

/// The parts of a decision over several tables. See [`crate::table`].
pub trait Steps {
    /// Where a bucket is, or that there is none.
    type Pointer: Clone;

    /// No bucket.
    fn nowhere(&self) -> Self::Pointer;

    /// Leaves the facts of the packet in the scratch: [`begin_packet`].
    fn begin_packet(&self, generation: Generation, header: RuleSetHeader, length: u64, now: Ticks);

    /// [`drive`].
    fn drive(&self, tables: u32) -> Packed;

    /// [`super::begin`].
    fn begin(&self, index: u32) -> bool;

    /// [`super::bucket`].
    fn find(&self, index: u32) -> Self::Pointer;

    /// [`super::peek`].
    fn peek(&self, bucket: Self::Pointer, index: u32) -> Code;

    /// [`super::look_again`].
    fn look_again(&self, index: u32) -> Code;

    /// [`super::charge`].
    fn charge(&self, bucket: Self::Pointer, index: u32) -> Code;

    /// [`super::fail`].
    fn fail(&self, index: u32, code: Code) -> Packed;

    /// The source table alone, of a rule set that has nothing else.
    fn plain_source(
        &self,
        generation: Generation,
        source: &Source,
        length: u64,
        now: Ticks,
    ) -> Packed;

    /// [`judge_source`].
    fn source(&self) -> Packed;

    /// [`super::over_source`].
    fn over_source(&self, outcome: Packed) -> Packed;

    /// [`dropped`].
    fn dropped(&self, bucket: Self::Pointer, index: u32, code: Code) -> Packed;

    /// [`finish`].
    fn finish(&self, source: Packed, tables: u32) -> Packed;
}

/// Runs a block for each table, unrolled.
macro_rules! each {
    ($label:lifetime, $buckets:ident, $tables:ident, |$bucket:ident, $index:ident| $body:block) => {
        each!($label, $buckets, $tables, |$bucket, $index| $body, 0 1 2 3 4 5 6 7)
    };
    ($label:lifetime, $buckets:ident, $tables:ident, |$bucket:ident, $index:ident| $body:block,
     $($number:literal)*) => {
        $label: {
            $(
                if $number >= $tables {
                    break $label;
                }
                let $index: u32 = $number;
                let Some($bucket) = $buckets.get_mut($number) else {
                    break $label;
                };
                $body
            )*
        }
    };
}

/// Judges the packet in the scratch by `tables` tables and by the source table.
///
/// The buckets stay in an array with constant indices: the verifier follows a pointer there, and
/// nowhere else.
#[inline(always)]
pub fn drive<S: Steps>(steps: &S, tables: u32) -> Packed {
    let nowhere = || steps.nowhere();
    let mut buckets: [S::Pointer; MAX_TABLES as usize] =
        [nowhere(), nowhere(), nowhere(), nowhere(), nowhere(), nowhere(), nowhere(), nowhere()];
    each!('look, buckets, tables, |bucket, index| {
        let keyed = steps.begin(index);
        if keyed {
            *bucket = steps.find(index);
        }
        let mut code = steps.peek(bucket.clone(), index);
        if matches!(code, Code::Stale) {
            code = steps.look_again(index);
        }
        if !matches!(code, Code::Ready) {
            return steps.dropped(bucket.clone(), index, code);
        }
    });
    let mut outcome = steps.source();
    if outcome.is_deferred() {
        outcome = steps.over_source(outcome);
    }
    if outcome.drops() {
        return outcome;
    }
    let code = steps.charge(steps.nowhere(), SOURCE_CLASS);
    if !matches!(code, Code::Ready) {
        return steps.fail(SOURCE_CLASS, code);
    }
    each!('charge, buckets, tables, |bucket, index| {
        let code = steps.charge(bucket.clone(), index);
        if !matches!(code, Code::Ready) {
            return steps.fail(index, code);
        }
    });
    steps.finish(outcome, tables)
}

/// Begins a packet whose facts are in the scratch.
#[inline(always)]
pub fn begin_packet<T: Tables>(
    maps: &T,
    scratch: &Scratch,
    generation: Generation,
    header: RuleSetHeader,
    length: u64,
    now: Ticks,
) {
    scratch.begin(now, length, generation);
    if let Some(step) = scratch.step(SOURCE_CLASS) {
        step.planned.set(Planned::Nothing as u32);
        step.repair.set(REPAIR_KEY);
        step.fixed.set(Slot::NONE.index());
    }
    if header.asks_for_daemon() {
        scratch.daemon_lost.set(u32::from(maps.daemon_lost(now)));
    }
    if header.flows() {
        scratch.flows.set(1);
        scratch.new_flow.set(u32::from(super::flow::is_new(maps, &scratch.facts, now)));
    }
}

/// Judges the packet by the source table, and charges it there.
#[inline(always)]
pub fn judge_source<M: Maps + Tables>(maps: &M, scratch: &Scratch) -> Packed {
    let source = scratch.facts.source();
    let (generation, length, now) = (scratch.generation(), scratch.length(), scratch.now());
    let (outcome, change) = source::judge(maps, generation, &source, length, now, true);
    scratch.source_rule.set(outcome.rule());
    scratch.source_old.set(change.old);
    // Of two plain zeros the compiler would make a call of memset, as in `Facts::clear`.
    scratch.source_new.set(black_box(change.new));
    outcome
}

/// Takes back what [`judge_source`] has charged and counted.
#[inline(always)]
pub fn undo_source<M: Maps>(maps: &M, scratch: &Scratch) {
    let (old, new) = (scratch.source_old.get(), scratch.source_new.get());
    source::undo(maps, &scratch.facts.source(), Change { old, new });
}

/// The outcome of a packet that a table drops, after counting it there. What the rule of its source
/// drops is counted in the bucket of the source, too, as what passes is.
#[inline(always)]
pub fn dropped<M: Maps + Tables>(
    maps: &M,
    bucket: Option<M::Keyed>,
    scratch: &Scratch,
    index: u32,
    code: Code,
) -> Outcome {
    if let Some(bucket) = bucket.or_else(|| super::bucket(maps, scratch, index)) {
        bucket.count(false, true);
    }
    let of_sources = |table: &Table| table.is_of_sources();
    if index >= SOURCE_CLASS || maps.table(scratch.generation(), index).is_some_and(of_sources) {
        maps.count_source(&scratch.facts.source(), false);
    }
    maps.count_class(scratch, index, false, true);
    let (rule, action, reason) = match scratch.step(index) {
        Some(step) => (step.rule.get(), step.action.get(), step.reason.get()),
        None => (0, 0, 0),
    };
    if matches!(code, Code::Over) {
        let reason = if reason == Reason::OverAggregate.index() {
            Reason::OverAggregate
        } else if reason == Reason::TableFull.index() {
            Reason::TableFull
        } else {
            Reason::OverLimit
        };
        let outcome = Outcome::new(reason, rule);
        return Outcome { action: (action & 0xffff) as u16, ..outcome };
    }
    Outcome::new(Reason::Contended, rule)
}

/// The outcome of a packet that every table lets pass. Of what the tables say, the most telling
/// reason wins, the first one among equals.
#[inline(always)]
pub fn finish<T: Tables>(maps: &T, scratch: &Scratch, source: Packed, tables: u32) -> Packed {
    let mut best = over::weight_of(source.reason_index());
    let mut outcome = source;
    let mut rounds = Rounds::new();
    while let Some(index) = rounds.next(u64::from(MAX_TABLES)) {
        if index >= tables {
            break;
        }
        if let Some(step) = scratch.step(scratch.unknown(index))
            && step.weight.get() > best
        {
            best = step.weight.get();
            outcome = source.passed_as(step.reason.get(), step.action.get());
        }
    }
    let companion = scratch.companion.get();
    if over::weight_of(companion) > over::weight_of(source.counted_index()) {
        outcome = outcome.counted_as(companion);
    }
    if scratch.flows.get() != 0 {
        super::flow::seen(maps, &scratch.facts, scratch.now());
    }
    outcome
}
