//! Limits and actions by the numbers that the program has.

use std::collections::BTreeMap;
use std::time::Duration;

use limiter_common::time::Ticks;
use limiter_common::wire::{
    Action, ActionKind, Algorithm, Evidence, Full, Kind, Limit, LimitSpec, MARK_ECN, OnLoss,
    Record, Role,
};

use super::rate::{Rates, period};
use super::{Beside, Known, action, charged_to, is_budget, of_limits};
use crate::model::{
    Ban, Delay, LimitList, Limits, Mark, Meter, Over, Quota, RuleLimit, Terms, Upper,
};
use crate::place::Installed;

/// The words for a rule set that is read back.
pub(super) struct Words<'a> {
    pub(super) installed: &'a Installed,
    pub(super) beside: Beside<'a>,
    pub(super) rates: Rates,
    /// Names of the budgets of rules, by their tags.
    pub(super) budgets: BTreeMap<u64, String>,
}

impl Words<'_> {
    /// Terms of a rule of the source table.
    pub(super) fn of_limit(&mut self, limit: &Limit) -> (Terms, Known) {
        if limit.is_unlimited() {
            return (Terms::Unlimited, Known::Exactly);
        }
        let (rate, exact) = self.rates.bucket(limit);
        let limits = Limits {
            over: self.over(limit.action),
            shadow: limit.kind == Kind::Shadow as u8,
            full: limit.when_full(),
            ..Limits::new(rate)
        };
        (of_limits(limits), known(exact))
    }

    /// Terms of a rule of a keyed table.
    pub(super) fn of_record(&mut self, record: &Record) -> (Terms, Known) {
        if let Some(name) = self.budgets.get(&record.budget_tag).filter(|_| is_budget(record)) {
            return (charged_to(name), Known::Exactly);
        }
        if record.is_unlimited() {
            return (Terms::Unlimited, Known::Exactly);
        }
        let (limits, known) = self.limits(record);
        (of_limits(limits), known)
    }

    pub(super) fn limits(&mut self, record: &Record) -> (Limits, Known) {
        let mut worst = if record.leased == 0 { Known::Exactly } else { Known::Part };
        let mark = match action(self.installed, record.soft_action).map(marked) {
            Some(Some(mark)) => Some(mark),
            Some(None) | None => None,
        };
        let mut limits = Vec::new();
        let mut specs = record.limits.iter().take(usize::from(record.count));
        while let Some(spec) = specs.next() {
            let (meter, exact) = self.meter(spec);
            worst = worst.max(known(exact));
            let upper = if spec.role() == Role::Soft { specs.next() } else { None };
            let Some(upper) = upper else {
                limits.push(RuleLimit::hard(meter));
                continue;
            };
            let (rate, exact) = self.rates.bucket(&upper.rate());
            worst = worst.max(known(exact));
            let upper = match upper.role() {
                Role::Excess => Upper::Excess(rate),
                // A peak is the same to the program.
                Role::Hard | Role::Soft => Upper::Ceiling(rate),
            };
            limits.push(RuleLimit { meter, upper: Some(upper), mark });
        }
        // A block says nothing of keys without a bucket: it has none.
        let full = if limits.is_empty() { Full::default() } else { record.when_full() };
        let loss = record.on_loss == OnLoss::Shadow as u8;
        let limits = Limits {
            over: self.delay(record).unwrap_or_else(|| self.over(record.action)),
            shadow: record.kind == Kind::Shadow as u8,
            full,
            on_loss: if loss { OnLoss::Shadow } else { OnLoss::Keep },
            ..Limits::new(LimitList::from(limits))
        };
        (limits, worst)
    }

    fn meter(&mut self, spec: &LimitSpec) -> (Meter, bool) {
        let count = spec.counts();
        let quota = |requests_per_unit, nanos| {
            let (period, exact) = period(nanos);
            (Quota::new(count, requests_per_unit, period), exact)
        };
        let window = spec.window();
        match spec.algorithm() {
            Algorithm::TokenBucket => {
                let (rate, exact) = self.rates.bucket(&spec.rate());
                (Meter::TokenBucket(rate), exact)
            }
            Algorithm::LeakyBucket => {
                let limit = spec.rate();
                let (quota, exact) = self.rates.quota(&limit);
                let backlog = Ticks::new(limit.tolerance);
                let nanos = backlog.as_nanos();
                let whole = Ticks::from_nanos(nanos) == backlog;
                let backlog = Duration::from_nanos(nanos);
                (Meter::LeakyBucket { quota, backlog }, exact && whole)
            }
            Algorithm::FixedWindow => {
                let (quota, exact) = quota(window.limit, window.width);
                (Meter::FixedWindow(quota), exact)
            }
            Algorithm::SlidingCounter => {
                let (quota, exact) = quota(window.limit, window.width);
                (Meter::SlidingCounter(quota), exact)
            }
            Algorithm::SlidingLog => {
                let log = spec.log();
                let (quota, exact) = quota(log.size.into(), log.window);
                (Meter::SlidingLog(quota), exact)
            }
            Algorithm::SlidingSlots => {
                let (nanos, strict) = slotted(window.width, window.slots);
                let (quota, exact) = quota(window.limit, nanos);
                (Meter::SlidingSlots { quota, slots: window.slots, strict }, exact)
            }
        }
    }

    /// The wait over the limits of a record, if it has one. The program has it in units of 65.5 µs,
    /// rounded down, and rules have it in whole milliseconds.
    fn delay(&self, record: &Record) -> Option<Over> {
        const MILLISECOND: u64 = 1_000_000;
        let [first, ..] = &record.limits;
        let nanos = first.longest_wait().as_nanos();
        let ecn = action(self.installed, record.soft_action)
            .is_some_and(|of| of.kind() == ActionKind::Delay);
        let longest = Duration::from_millis(nanos.div_ceil(MILLISECOND));
        (nanos > 0).then_some(Over::Delay(Delay { longest, ecn }))
    }

    /// Action over a limit, by its index.
    fn over(&self, index: u16) -> Over {
        let Some(of) = action(self.installed, index) else { return Over::Drop };
        match of.kind() {
            // No rule has these, but over a soft limit or for packets that wait.
            ActionKind::Drop | ActionKind::Pass | ActionKind::Delay => Over::Drop,
            ActionKind::Reject => Over::Reject,
            ActionKind::Mark => marked(of).map_or(Over::Drop, Over::Mark),
            ActionKind::Class => {
                let record = self.installed.tables.records.get(&of.target);
                let name = record.and_then(|record| self.budgets.get(&record.budget_tag));
                Over::Class(name.cloned().unwrap_or_else(|| "(unknown)".to_owned()))
            }
            ActionKind::Interface => {
                let index = self.installed.tables.interfaces.get(&of.target).copied();
                Over::Interface(self.beside.interface(index.unwrap_or_default()))
            }
            ActionKind::Cpu => Over::Cpu(of.target),
            ActionKind::Ban => Over::Ban(Box::new(ban(of))),
        }
    }
}

const fn known(exact: bool) -> Known {
    if exact { Known::Exactly } else { Known::About }
}

/// The mark of an action; `None` if it only passes.
const fn marked(action: &Action) -> Option<Mark> {
    match (action.kind(), action.dscp) {
        (ActionKind::Mark, MARK_ECN) => Some(Mark::Ecn),
        (ActionKind::Mark, dscp) => Some(Mark::Dscp(dscp)),
        _ => None,
    }
}

fn ban(action: &Action) -> Ban {
    let time = |ticks| Duration::from_nanos(Ticks::new(ticks).as_nanos());
    let none = action.evidence == Evidence::None as u8;
    Ban {
        first: time(action.ban_first),
        longest: time(action.ban_longest),
        memory: time(action.ban_memory),
        strikes: action.target,
        evidence: if none { Evidence::None } else { Evidence::Established },
    }
}

/// The window of slots of a width in nanoseconds, and whether it is strict. Both readings of a
/// width are the same to the program; the one with the rounder window is reported.
fn slotted(width: u64, slots: u8) -> (u64, bool) {
    const SECOND: u64 = 1_000_000_000;
    let lenient = width.saturating_mul(slots.into());
    let parts = u64::from(slots.saturating_sub(1).max(1));
    // Of strict slots the width was rounded up.
    let strict = width.saturating_mul(parts) / SECOND * SECOND;
    let is_strict = strict > 0 && strict.div_ceil(parts) == width;
    let is_lenient = lenient.is_multiple_of(SECOND);
    let rounder = || period(strict).0.multiplier < period(lenient).0.multiplier;
    if is_strict && (!is_lenient || rounder()) { (strict, true) } else { (lenient, false) }
}
