//! The consequences of a change for sources that have used up a limit.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;

use limiter_common::time::Ticks;
use limiter_common::wire::{Algorithm, Limit, LimitSpec, Record};
use limiter_text::spoken;

use super::installed::{Installed, InstalledTables};
use super::largest::{token, units};
use crate::compile::{RuleId, TableForm};
use crate::model::Selector;

/// The kinds of changes of limits, of which each has a consequence for sources that have used up
/// theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a kind of change that there was")]
pub struct Used {
    /// A limit is larger, and grants the difference.
    raised: bool,
    /// A number of a window is smaller: nanoseconds until all that was used of the old one has come
    /// back.
    cut: Option<u64>,
    /// A limit of a rate changed, and gives its new rate alone: a cut, another rate, or a raise
    /// after a cut, on trial, or of another rule.
    rate: bool,
    /// A limit of a rate is smaller on trial, and counts in full what was used.
    tried: bool,
    /// A trial with such a limit is taken back.
    back: bool,
    /// The limit counts in another way: what was left stays left.
    counted: bool,
    /// The limit counts another unit: the used share stays.
    unit: bool,
    /// The limit begins anew.
    anew: bool,
}

/// The limits of a source or a key, in one of the tables.
#[derive(Clone, Copy, Debug)]
pub(super) enum Held<'a> {
    Source(u32, &'a Limit),
    Keyed(u32, &'a Record),
}

/// Bucket or buckets that a limit may have been used in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The bucket of one source.
    Source(Selector),
    /// All buckets of a rule, with the index of its counters.
    Rule(u32),
    /// All buckets that are charged to a budget.
    Budget,
}

impl Held<'_> {
    /// The buckets of the limits: that of a source, if it is a single one.
    fn holder(&self, source: Option<Selector>) -> Holder {
        match self {
            Self::Keyed(_, record) if record.budget_tag != 0 => Holder::Budget,
            Self::Keyed(_, record) => Holder::Rule(record.rule),
            Self::Source(_, limit) => match source.filter(Selector::is_source) {
                Some(source) => Holder::Source(source),
                None => Holder::Rule(limit.rule),
            },
        }
    }

    fn is_unlimited(&self) -> bool {
        match self {
            Self::Source(_, limit) => limit.is_unlimited(),
            Self::Keyed(_, record) => record.is_unlimited() || record.count == 0,
        }
    }

    fn same_place(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Source(a, _), Self::Source(b, _)) | (Self::Keyed(a, _), Self::Keyed(b, _)) => {
                a == b
            }
            _ => false,
        }
    }
}

impl Installed {
    /// The consequences for sources that have used limits of `before` which changed here. `is_used`
    /// says whether somebody may have used a limit of it.
    pub fn used_of(&self, before: &Self, is_used: impl Fn(Holder) -> bool) -> Used {
        let mut used = Used::default();
        for selector in self.changed_sources(before) {
            if let (Some(old), Some(new)) = (before.held(&selector), self.held(&selector))
                && !old.same_place(&new)
                && is_used(old.holder(Some(selector)))
            {
                used.note(old, new);
            }
        }
        for (id, slot) in &self.tables.rules {
            let Some(old_slot) = before.tables.rules.get(id).filter(|old| *old != slot) else {
                continue;
            };
            let records = (before.tables.records.get(old_slot), self.tables.records.get(slot));
            let (Some(old), Some(new)) = records else { continue };
            if id.selector().is_some() && id.form.has_keys() {
                // Among the sources.
                continue;
            }
            if !is_used(Held::Keyed(*old_slot, old).holder(None)) {
                continue;
            }
            if before.tables.is_compact(id.form) == self.tables.is_compact(id.form) {
                used.note(Held::Keyed(*old_slot, old), Held::Keyed(*slot, new));
            } else {
                used.anew = true;
            }
        }
        used
    }

    /// Sources whose rule is in different places, or missing in one of the two sets.
    fn changed_sources(&self, before: &Self) -> BTreeSet<Selector> {
        let mut changed = BTreeSet::new();
        for (one, other) in [(self, before), (before, self)] {
            let by_source = one.rules.iter().filter(|(selector, rule)| {
                other.rules.get(selector).is_none_or(|other| other.slot != rule.slot)
            });
            changed.extend(by_source.map(|(selector, _)| *selector));
            let keyed = one.tables.rules.iter();
            let keyed = keyed.filter(|(id, slot)| other.tables.rules.get(id) != Some(slot));
            changed.extend(keyed.filter_map(|(id, _)| id.selector()));
        }
        changed
    }

    /// The limits of sources: of the longest prefix.
    pub(super) fn held(&self, source: &Selector) -> Option<Held<'_>> {
        std::iter::once(*source).chain(source.wider()).find_map(|at| {
            if let Some(rule) = self.rules.get(&at) {
                return Some(Held::Source(rule.slot, &rule.limit));
            }
            let slot = self.tables.rules.get(&RuleId::of_source(&at))?;
            Some(Held::Keyed(*slot, self.tables.records.get(slot)?))
        })
    }
}

impl InstalledTables {
    /// True if keys of IPv4 packets of a table are compact.
    fn is_compact(&self, form: TableForm) -> bool {
        self.ids.get(&form).is_some_and(|id| self.compact.iter().any(|table| table.id == *id))
    }
}

impl Used {
    fn note(&mut self, old: Held<'_>, new: Held<'_>) {
        if old.is_unlimited() || new.is_unlimited() {
            return;
        }
        match (old, new) {
            (Held::Source(_, old), Held::Source(_, new)) => {
                self.note_limit(&token(old), &token(new), old.rule == new.rule);
            }
            (Held::Keyed(_, old), Held::Keyed(_, new)) if old.budget_tag != new.budget_tag => {
                self.anew = true;
            }
            // What nodes share is counted elsewhere.
            (Held::Keyed(_, old), Held::Keyed(_, new)) if old.leased | new.leased != 0 => {}
            (Held::Keyed(_, old), Held::Keyed(_, new)) => {
                let same_rule = old.rule == new.rule;
                let [old, new] =
                    [old, new].map(|record| record.limits.iter().take(usize::from(record.count)));
                for (old, new) in old.zip(new) {
                    self.note_limit(old, new, same_rule);
                }
            }
            _ => self.anew = true,
        }
    }

    fn note_limit(&mut self, old: &LimitSpec, new: &LimitSpec, same_rule: bool) {
        if old.counts() != new.counts() {
            self.unit = true;
            return;
        }
        if !(old.is_rate() && new.is_rate() || in_one_window(old, new)) {
            self.counted = true;
            return;
        }
        let (had, has) = (units(old), units(new));
        if new.is_cut_on_trial() || old.is_cut_on_trial() && has > had {
            self.tried |= new.is_cut_on_trial();
            self.back |= old.is_cut_on_trial();
            return;
        }
        match has.cmp(&had) {
            Ordering::Greater
                if !new.is_rate() || same_rule && old.is_largest() && new.is_largest() =>
            {
                self.raised = true;
            }
            Ordering::Greater => self.rate = true,
            Ordering::Less if new.is_rate() => self.rate = true,
            Ordering::Less => {
                let wait = self.cut.unwrap_or(0).max(time_of(new));
                self.cut = Some(wait);
            }
            Ordering::Equal => self.rate |= !old.same_state(new),
        }
    }
}

fn in_one_window(old: &LimitSpec, new: &LimitSpec) -> bool {
    old.algorithm() == new.algorithm()
        && if old.algorithm() == Algorithm::SlidingLog {
            old.log().window == new.log().window
        } else {
            old.same_state(new)
        }
}

/// Nanoseconds after which a limit in windows has forgotten all use.
fn time_of(spec: &LimitSpec) -> u64 {
    let nanos = match spec.algorithm() {
        Algorithm::SlidingLog => spec.log().window.into(),
        // The window before counts as well.
        Algorithm::SlidingCounter => u128::from(spec.window().width) * 2,
        _ => u128::from(spec.window().width) * u128::from(spec.window().slots.max(1)),
    };
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

/// A length of time in words; long ones without their small parts.
fn long(nanos: u64) -> String {
    let seconds = nanos.div_ceil(1_000_000_000);
    if nanos > Ticks::new(u64::MAX).as_nanos() {
        return "years".to_owned();
    }
    let grain = match seconds {
        0..600 => 1,
        600..86_400 => 60,
        _ => 3600,
    };
    spoken::seconds(seconds.div_ceil(grain) * grain)
}

impl fmt::Display for Used {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { raised, cut, rate, tried, back, counted, unit, anew } = *self;
        let mut parts = Vec::new();
        if raised {
            let text = "a source that used up a raised limit gets the difference at once";
            parts.push(text.to_owned());
        }
        if rate {
            parts.push("a limit that a source has used up refills at the new rate".to_owned());
        }
        if tried {
            let text = "on trial, what a source has used of a limit counts in full, and one that \
                        used more than it now allows passes nothing";
            parts.push(text.to_owned());
        }
        if back {
            let text = "a source has what the limit before the trial would have left";
            parts.push(text.to_owned());
        }
        if let Some(wait) = cut {
            parts.push(format!(
                "a source that used more than a limit now allows waits until the window has \
                 passed, at most {}",
                long(wait)
            ));
        }
        if counted {
            let text =
                "where the algorithm or the window changed, the available amount carries over";
            parts.push(text.to_owned());
        }
        if unit {
            parts.push("where the unit changed, the used share carries over".to_owned());
        }
        if anew {
            let text = "where a limit moved to another table, every source starts with all of it";
            parts.push(text.to_owned());
        }
        f.write_str(&parts.join("; "))
    }
}

impl Used {
    /// The line to print; `None` if no limit that somebody could have used changed.
    pub fn line(&self) -> Option<String> {
        (*self != Self::default()).then(|| self.to_string())
    }
}
