//! The order of a packet's way through the tables: check everywhere, then charge everywhere.

use core::hint::black_box;

use limiter_common::bucket::{Change, Generation, Slot};
use limiter_common::frame_size::FrameSize;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{
    Control, MAX_RANGES, MAX_TABLES, RULE_NONE, RuleSetHeader, is_daemon_lost,
};

use super::buckets::refresh::refresh;
use super::buckets::target;
use super::charges::charge::charge;
use super::charges::over::{count_class, over_source};
use super::charges::undo::{undo_source, undo_table};
use super::clock::read_clock;
use super::keys::compact::is_compact;
use super::keys::key::{locate, put};
use super::limits::weight::weight_of;
use super::peek::peek;
use super::plain_route::compact_row::{charge_compact, look_compact, undo_compact};
use super::result::{Begun, NO_RECORD, Stale, TableResult};
use super::scratch::{Plan, SOURCE_CLASS, Scratch};
use crate::call::call;
use crate::engine::SourcePacket;
use crate::engine::source::{count_source, judge};
use crate::maps::{Keyed as _, Maps};
use crate::outcome::{Outcome, Packed};
use crate::rounds::Rounds;

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
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn run_tables<W: Maps>(maps: &W, scratch: &Scratch, tables: u32) -> Packed {
    let mut buckets: [Option<W::Keyed>; MAX_TABLES as usize] =
        [None, None, None, None, None, None, None, None];
    call!(read_clock(maps, scratch;));
    scratch.compact.set(0);
    each!('look, buckets, tables, |bucket, index| {
        let begun = call!(begin(maps, scratch; index));
        if begun != Begun::ABSENT {
            if begun == Begun::KEYED {
                *bucket = target::of_key(maps, scratch, index);
            }
            let mut result = call!(peek(maps, scratch; bucket.as_ref(), index));
            if result == TableResult::STALE {
                result = call!(peek_again(maps, scratch; index));
            }
            if result != TableResult::READY {
                return call!(note_dropped(maps, scratch; bucket.as_ref(), index, result));
            }
        }
    });
    if scratch.compact.get() != 0
        && let Some(outcome) = call!(look_compact(maps, scratch;))
    {
        return outcome;
    }
    if scratch.sources.get() != 0 {
        let mut outcome = judge_source(maps, scratch);
        if outcome.is_deferred() {
            outcome = call!(over_source(maps, scratch; outcome));
        }
        if outcome.drops() {
            return outcome;
        }
        scratch.source_outcome.set(outcome.raw());
        let result = call!(charge(maps, scratch; None::<&W::Keyed>, SOURCE_CLASS));
        if result != TableResult::READY {
            return call!(fail(maps, scratch; SOURCE_CLASS, result));
        }
    }
    if scratch.compact.get() != 0
        && let Some(outcome) = call!(charge_compact(maps, scratch; 0_u32))
    {
        return outcome;
    }
    each!('charge, buckets, tables, |bucket, index| {
        let result = call!(charge(maps, scratch; bucket.as_ref(), index));
        if result != TableResult::READY {
            return call!(fail(maps, scratch; index, result));
        }
    });
    if scratch.flows.get() != 0 {
        call!(remember_flow(maps, scratch;));
    }
    finish(scratch, tables)
}

/// Records the flow of a packet that passes.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn remember_flow<W: Maps>(maps: &W, scratch: &Scratch) {
    super::flow::seen(maps, &scratch.facts, scratch.now());
}

/// Begins the check of a table: writes its key into `scratch`, if it has one.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn begin<W: Maps>(maps: &W, scratch: &Scratch, index: u32) -> Begun {
    let generation = scratch.generation();
    let mut fixed = NO_RECORD.index();
    let mut begun = Begun::ABSENT;
    if let Some(table) = maps.table(generation, index)
        && let Some(place) = scratch.key(index)
        && let Some(key) = locate(table, &scratch.facts, &scratch.key_facts.get())
    {
        put(maps, place, key);
        fixed = table.fixed;
        begun = if fixed == Slot::NONE.index() { Begun::KEYED } else { Begun::FIXED };
        if is_compact(table, &scratch.key_facts.get()) {
            begun = Begun::ABSENT;
            scratch.compact.set(scratch.compact.get() | 1 << (index & (MAX_TABLES - 1)));
        }
        let [first, ..] = &table.ranges;
        let mut rounds = Rounds::new();
        while first.is_some()
            && let Some(number) = rounds.next(MAX_RANGES as u64)
        {
            if !call!(class_range(maps, scratch; index, number)) {
                break;
            }
        }
    }
    if let Some(account) = scratch.account(index) {
        account.fixed.set(fixed);
        account.plan.set(Plan::Nothing as u32);
        account.weight.set(0);
        account.rule.set(RULE_NONE);
    }
    begun
}

/// Puts the class of a range into the key in `scratch`, if the key's value is in the range; false
/// if the table has no more ranges.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn class_range<W: Maps>(maps: &W, scratch: &Scratch, index: u32, number: u32) -> bool {
    if let Some(table) = maps.table(scratch.generation(), index)
        && let Some(range) = table.ranges.get(number as usize & (MAX_RANGES - 1))
        && range.is_some()
        && let Some(key) = scratch.key(index)
    {
        put(maps, key, range.classed(key.get()));
        return true;
    }
    false
}

const _: () = assert!(MAX_RANGES.is_power_of_two());

/// Refreshes in one check before the packet is dropped as contended: of the key's bucket, of the
/// rule's budget, and of the budget of the class to which it sends the packet.
const MAX_REFRESHES: u64 = 3;

/// Refreshes a bucket that a check found stale, and checks again.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn peek_again<W: Maps>(maps: &W, scratch: &Scratch, index: u32) -> TableResult {
    let mut result = TableResult::STALE;
    let mut rounds = Rounds::new();
    while result == TableResult::STALE && rounds.more(MAX_REFRESHES) {
        call!(refresh(maps, scratch; index));
        let bucket = target::bucket(maps, scratch, index);
        result = call!(peek(maps, scratch; bucket.as_ref(), index));
    }
    result
}

/// Begins a packet whose facts are in the scratch.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn begin_packet<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    generation: Generation,
    header: RuleSetHeader,
    size: FrameSize,
    now: Ticks,
) {
    scratch.begin(now, size, generation);
    scratch.sources.set(u32::from(header.has_sources()));
    scratch.source_outcome.set(Outcome::without_rule(Reason::NoRule).pack().raw());
    if let Some(account) = scratch.account(SOURCE_CLASS) {
        account.plan.set(Plan::Nothing as u32);
        account.stale.set(Stale::KEY);
        account.fixed.set(Slot::NONE.index());
    }
    if header.asks_for_daemon() {
        let lost = is_daemon_lost(maps.control(Control::DaemonLost), now);
        scratch.daemon_lost.set(u32::from(lost));
    }
    if header.flows() {
        scratch.flows.set(1);
        scratch.new_flow.set(u32::from(super::flow::is_new(maps, &scratch.facts, now)));
    }
}

/// Judges the packet by the source table, and charges it there.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn judge_source<W: Maps>(maps: &W, scratch: &Scratch) -> Packed {
    let bucket_key = scratch.facts.source().into();
    let (generation, size, now) = (scratch.generation(), scratch.size::<W>(), scratch.now());
    let packet = SourcePacket { bucket_key, generation, size, now, deferred: true };
    let (outcome, Change { old, new }) = call!(judge(maps; &packet));
    scratch.source_old.set(old);
    // The compiler would turn plain zeros in both into a call of memset, as in `Facts::clear`.
    scratch.source_new.set(black_box(new));
    outcome
}

/// [`judge_source`] of a packet in plain tables, if the source table may have a rule. An error ends
/// that route: the outcome of a packet dropped there, or none if it needs the general route.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn charge_source<W: Maps>(maps: &W, scratch: &Scratch) -> Result<(), Option<Packed>> {
    if scratch.sources.get() == 0 {
        return Ok(());
    }
    let source = judge_source(maps, scratch);
    if source.is_deferred() {
        return Err(None);
    }
    if source.drops() {
        return Err(Some(source));
    }
    scratch.source_outcome.set(source.raw());
    Ok(())
}

/// The outcome of a packet that a table drops, after counting it there. A drop by the class of a
/// source is counted in the bucket of the source, as packets that pass are.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn note_dropped<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    bucket: Option<&W::Keyed>,
    index: u32,
    result: TableResult,
) -> Packed {
    #[cfg(not(target_arch = "bpf"))]
    scratch.stopped.set(Some(index));
    if let Some(bucket) = bucket.cloned().or_else(|| target::bucket(maps, scratch, index)) {
        bucket.count(false, scratch.size::<W>().packets());
    }
    if index >= SOURCE_CLASS {
        let packets = scratch.size::<W>().packets();
        call!(count_source(maps; &scratch.facts.source().into(), false, packets));
    }
    let (plan, rule, action, reason) = match scratch.account(index) {
        Some(account) => {
            (account.plan.get(), account.rule.get(), account.action.get(), account.reason.get())
        }
        None => (0, 0, 0, 0),
    };
    if plan == Plan::Class as u32 {
        call!(count_class(maps, scratch; index, false, true));
    }
    if result == TableResult::OVER {
        let reason = if reason == Reason::OverAggregate.index() {
            Reason::OverAggregate
        } else if reason == Reason::TableFull.index() {
            Reason::TableFull
        } else if reason == Reason::Blocked.index() {
            Reason::Blocked
        } else {
            Reason::OverLimit
        };
        let outcome = Outcome::new(reason, rule);
        return Outcome { action: (action & 0xffff) as u16, ..outcome }.pack();
    }
    Outcome::new(Reason::Contended, rule).pack()
}

/// The outcome of a packet that every table passes. The most specific reason of all tables wins,
/// and the first one among equals.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn finish(scratch: &Scratch, tables: u32) -> Packed {
    let source = Packed::from_raw(scratch.source_outcome.get());
    let mut best = weight_of(source.reason_index());
    let mut outcome = source;
    let mut rounds = Rounds::new();
    while let Some(index) = rounds.next(u64::from(MAX_TABLES)) {
        if index >= tables {
            break;
        }
        if let Some(account) = scratch.account(scratch.unknown(index))
            && account.weight.get() > best
        {
            best = account.weight.get();
            outcome = source.passed_as(account.reason.get(), account.action.get());
        }
    }
    outcome
}

/// Undoes everything that was charged before table `index`, and counts the drop there.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn fail<W: Maps>(maps: &W, scratch: &Scratch, index: u32, result: TableResult) -> Packed {
    let outcome = call!(note_dropped(maps, scratch; None::<&W::Keyed>, index, result));
    let mut rounds = Rounds::new();
    while let Some(before) = rounds.next(u64::from(MAX_TABLES)) {
        // The class of the source table is charged before all tables.
        if before >= index || index == SOURCE_CLASS {
            break;
        }
        call!(undo_table(maps, scratch; before));
    }
    if index != SOURCE_CLASS {
        call!(undo_table(maps, scratch; SOURCE_CLASS));
        if scratch.compact.get() != 0 {
            call!(undo_compact(maps, scratch; scratch.compact_keys.get()));
        }
    }
    if scratch.sources.get() != 0 {
        undo_source(maps, scratch);
    }
    outcome
}
