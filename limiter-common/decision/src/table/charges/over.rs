//! Actions on packets over a hard limit.

use limiter_common::bucket::Slot;
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::ActionKind;

use crate::call::call;
use crate::engine::source::count_source;
use crate::maps::Maps;
use crate::outcome::{Outcome, Packed};
use crate::table::buckets::refresh;
use crate::table::buckets::target::{TargetLookup, target_of};
use crate::table::limits::check::{Check, check_target};
use crate::table::result::{Stale, TableResult};
use crate::table::scratch::{Plan, SOURCE_CLASS, Scratch};

/// The effect of an action on a packet that is over a hard limit.
pub(crate) struct Over {
    pub(crate) plan: Plan,
    pub(crate) reason: Reason,
    pub(crate) result: TableResult,
    pub(crate) stale: Stale,
}

/// Reads the action; for a class, checks its budget.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn over<W: Maps>(maps: &W, scratch: &Scratch, action: u32) -> Over {
    let gone = Over {
        plan: Plan::Nothing,
        reason: Reason::OverLimit,
        result: TableResult::OVER,
        stale: Stale::KEY,
    };
    let Some(action) = maps.action(action) else {
        return gone;
    };
    let goes_on = Over { plan: Plan::Count, result: TableResult::READY, ..gone };
    match action.kind() {
        ActionKind::Drop | ActionKind::Reject | ActionKind::Ban | ActionKind::Delay => gone,
        ActionKind::Mark | ActionKind::Pass => Over { reason: Reason::Marked, ..goes_on },
        ActionKind::Interface | ActionKind::Cpu => Over { reason: Reason::Redirected, ..goes_on },
        ActionKind::Class => match target_of(maps, scratch, Slot::new(action.target), None) {
            TargetLookup::Free(_) | TargetLookup::Full(_) => gone,
            TargetLookup::Stale(stale) => Over { result: TableResult::STALE, stale, ..gone },
            TargetLookup::Target(target) => match check_target(maps, scratch, &target) {
                Check::WITHIN | Check::SOFT => {
                    Over { plan: Plan::Class, reason: Reason::Class, ..goes_on }
                }
                Check::OVER => Over { plan: Plan::Class, ..gone },
                // The bucket was pointed to another rule meanwhile.
                _ => Over { result: TableResult::STALE, stale: target.stale, ..gone },
            },
        },
    }
}

/// Applies the action of a source table's limit to a packet over it. A class is charged at the
/// account [`SOURCE_CLASS`].
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn over_source<W: Maps>(maps: &W, scratch: &Scratch, outcome: Packed) -> Packed {
    let outcome = outcome.unpack();
    let action = u32::from(outcome.action);
    let mut over = over(maps, scratch, action);
    if over.result == TableResult::STALE {
        refresh::refresh_budget(maps, scratch, over.stale);
        over = self::over(maps, scratch, action);
    }
    if let Some(account) = scratch.account(SOURCE_CLASS) {
        account.plan.set(match over.plan {
            Plan::Class => Plan::Class as u32,
            _ => Plan::Nothing as u32,
        });
        account.rule.set(outcome.rule);
        account.reason.set(Reason::Class.index());
        account.action.set(action);
    }
    if over.result == TableResult::OVER {
        call!(count_class(maps, scratch; SOURCE_CLASS, false, true));
    }
    let reason = match over.result {
        TableResult::READY | TableResult::OVER => over.reason,
        _ => Reason::Contended,
    };
    let passed = matches!(reason.verdict(), Verdict::Pass);
    let packets = scratch.size::<W>().packets();
    call!(count_source(maps; &scratch.facts.source().into(), passed, packets));
    Outcome { reason, counted: reason, ..outcome }.pack()
}

/// Counts a packet under the budget of the class to which account `index` sends it, if it does, or
/// undoes that if `add` is false.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn count_class<W: Maps>(maps: &W, scratch: &Scratch, index: u32, passed: bool, add: bool) {
    let Some(account) = scratch.account(index) else {
        return;
    };
    if !matches!(Plan::from_raw(account.plan.get()), Plan::Class) {
        return;
    }
    let (slot, reason) = if passed {
        // It may wait there, and its action may have become that of the wait.
        let waits = account.reason.get() == Reason::Delayed.index();
        let reason = if waits { Reason::Delayed } else { Reason::Conforming };
        (account.target().0, reason)
    } else {
        let Some(action) = maps.action(account.action.get()) else {
            return;
        };
        (Slot::new(action.target), Reason::OverLimit)
    };
    if let Some(record) = maps.record(slot) {
        maps.count_rule(record.rule, reason, scratch.size::<W>(), add);
    }
}
