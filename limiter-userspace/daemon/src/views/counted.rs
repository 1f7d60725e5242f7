//! Counters of rules: finds which counters belong to which rule.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use limiter_api::sources::DroppedBy;
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::{ActionKind, RULE_NONE, RULE_RETIRED, RuleCounters, Tally};
use limiter_datapath::Observed;
use limiter_rules::compile::OWN_BUDGETS;
use limiter_rules::model::Limits;
use limiter_rules::place::{InstalledTables, Title};
use limiter_rules::{Installed, Subject, Terms};

use super::reported::Result;
use crate::error::ServiceError;
use crate::rule_sets::effective::{Effective, EffectiveSet};

/// Most rules of a kind that are added up for an answer: a few milliseconds.
const MOST_RULES: usize = 4096;

/// Reasons of drops by lists and bans.
pub(crate) const BEFORE_RULES: [Reason; 3] = [Reason::Denied, Reason::Banned, Reason::Martian];

/// Drops since the maps were made, by cause. Each part is added up from its own counters, so that
/// no drops appear that did not happen.
pub(crate) fn dropped_by(datapath: &dyn Observed) -> Result<DroppedBy> {
    let installed = datapath.installed();
    let sum = |of: &BTreeMap<u32, u64>| of.values().fold(0, |sum: u64, of| sum.wrapping_add(*of));
    let [sources, others] = match dropped_by_rules(datapath)? {
        Some([sources, others]) => {
            let once = counts_once(&installed.tables);
            [Some(sum(&sources)), once.then(|| sum(&others))]
        }
        None => [None, None],
    };
    Ok(DroppedBy {
        sources,
        others,
        lists: dropped_by_lists(datapath)?,
        removed: datapath.rule_counters(RULE_RETIRED)?.dropped.packets,
    })
}

/// Drops since the maps were made by each rule and budget, by number: by those that count every
/// source by itself, and by the others. `None` where they are too many to be added up.
pub(crate) fn dropped_by_rules(datapath: &dyn Observed) -> Result<Option<[BTreeMap<u32, u64>; 2]>> {
    let installed = datapath.installed();
    if installed.rules.len() + installed.tables.rules.len() > MOST_RULES {
        return Ok(None);
    }
    let [mut sources, mut others] = [BTreeMap::new(), BTreeMap::new()];
    for (number, of) in counts_each(installed) {
        let into = if of.is_all() { &mut sources } else { &mut others };
        into.insert(number, datapath.rule_counters(number)?.dropped.packets);
    }
    Ok(Some([sources, others]))
}

/// Drops since the maps were made by the deny list, bans and `martians`.
pub(crate) fn dropped_by_lists(datapath: &dyn Observed) -> Result<u64> {
    let tallies = Reason::ALL.into_iter().zip(datapath.reasons()?);
    let lists = tallies.filter(|(reason, _)| BEFORE_RULES.contains(reason));
    Ok(lists.map(|(_, tally)| tally.packets).sum())
}

/// True for each family in which a rule has a bucket for every source whose packets it drops;
/// `None` if that holds for only some of the rules with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountsEach {
    pub(crate) v4: Option<bool>,
    pub(crate) v6: Option<bool>,
}

impl CountsEach {
    fn is_all(self) -> bool {
        [self.v4, self.v6] == [Some(true); 2]
    }

    fn and(self, other: Self) -> Self {
        let both = |one: Option<bool>, other| one.filter(|_| one == other);
        Self { v4: both(self.v4, other.v4), v6: both(self.v6, other.v6) }
    }
}

/// The rules by number, with the families in which they count each source.
pub(crate) fn counts_each(installed: &Installed) -> BTreeMap<u32, CountsEach> {
    let each = CountsEach { v4: Some(true), v6: Some(true) };
    let mut rules: BTreeMap<u32, CountsEach> =
        installed.rules.values().map(|rule| (rule.limit.rule, each)).collect();
    let [v4, v6] = [IpAddr::from([0; 4]), IpAddr::from([0; 16])].map(IpNet::from);
    for (rule, slot) in &installed.tables.rules {
        let Some(record) = installed.tables.records.get(slot) else { continue };
        // In a family that the table is not for, nothing is dropped.
        let is_for = |net: &IpNet| rule.form.source.is_none_or(|masks| masks.of(net).is_some());
        // A block has no buckets.
        let has = |net: &IpNet| rule.form.distinguishes_sources(net) && !record.is_block();
        let counts = |net: &IpNet| Some(has(net) || !is_for(net));
        let counts = CountsEach { v4: counts(&v4), v6: counts(&v6) };
        rules.entry(record.rule).and_modify(|known| *known = known.and(counts)).or_insert(counts);
    }
    rules
}

/// Returns true if no drop is counted by two rules: a packet without room in a class is dropped by
/// the rule that sends it there.
fn counts_once(tables: &InstalledTables) -> bool {
    let class = |slot| {
        let mut actions = tables.actions.values();
        actions.any(|action| action.kind() == ActionKind::Class && action.target == slot)
    };
    let named: BTreeSet<u32> = tables.rules.values().copied().collect();
    let is_named_class = |slot: &u32| {
        tables.records.get(slot).is_some_and(|record| record.budget_tag != 0) && class(*slot)
    };
    !named.iter().any(is_named_class)
}

/// The counters of a rule; zero for a rule that no packet can reach. A rule charged to a budget has
/// no counters of its own.
pub(super) fn rule(datapath: &dyn Observed, effective: &Effective) -> Result<RuleCounters> {
    let Effective { rule, from_maps, .. } = effective;
    if matches!(rule.terms, Terms::Budget(_)) {
        return Ok(RuleCounters::default());
    }
    let index = |name: &str| datapath.interface_index(name);
    let number = match from_maps {
        Some(from) => Some(from.number),
        None => datapath.installed().number(&rule.path, &index),
    };
    match number {
        Some(number) => Ok(datapath.rule_counters(number)?),
        None => Ok(RuleCounters::default()),
    }
}

/// The counters of a budget; `None` if it is not installed.
pub(super) fn budget(
    datapath: &dyn Observed,
    effective: &EffectiveSet,
    name: &str,
) -> Result<Option<RuleCounters>> {
    let record = datapath.installed().tables.budget(effective.tag(name));
    let Some((_, record)) = record else {
        return Ok(None);
    };
    datapath.rule_counters(record.rule).map(Some).map_err(ServiceError::Datapath)
}

/// The rules in force that packets can reach, with their numbers: those of their budgets, if they
/// are charged to one.
pub(crate) fn numbered<'a>(
    datapath: &'a dyn Observed,
    effective: &'a EffectiveSet,
) -> impl Iterator<Item = (u32, &'a Effective)> {
    let index = |name: &str| datapath.interface_index(name);
    effective
        .rules
        .iter()
        .filter_map(move |of| Some((datapath.installed().number(&of.rule.path, &index)?, of)))
}

/// The rules and budgets in force, by number.
pub(crate) fn names(datapath: &dyn Observed, effective: &EffectiveSet) -> BTreeMap<u32, Title> {
    let budgets = effective.budgets.iter().map(|of| (of.name.as_str(), effective.tag(&of.name)));
    let rules = effective.rules.iter().map(AsRef::as_ref);
    datapath.installed().titles(rules, budgets, &|name| datapath.interface_index(name))
}

/// The rules in shadow mode, by number. For a packet that one of them would have dropped, the
/// program notes the rule of the source, as for every packet that passes.
#[derive(Debug, Default)]
pub(crate) struct Shadows {
    /// Rules by source whose packets have no other table.
    of_sources: BTreeSet<u32>,
    others: BTreeSet<u32>,
}

impl Shadows {
    pub(crate) fn of(datapath: &dyn Observed, effective: &EffectiveSet) -> Self {
        let installed = datapath.installed();
        let plain: BTreeSet<u32> = installed.rules.values().map(|rule| rule.limit.rule).collect();
        let rules = numbered(datapath, effective).filter(|(_, of)| of.rule.terms.is_shadow());
        let budgets = effective.budgets.iter().filter(|budget| budget.limits.shadow);
        let budgets = budgets
            .filter_map(|budget| installed.tables.budget(effective.tag(&budget.name)))
            .map(|(_, record)| record.rule);
        let (of_sources, others) =
            rules.map(|(number, _)| number).chain(budgets).partition(|rule| plain.contains(rule));
        Self { of_sources, others }
    }

    /// The rule to report with a reason; [`RULE_NONE`] if several rules are possible.
    pub(crate) fn reported(&self, reason: Reason, rule: u32) -> u32 {
        if reason != Reason::Shadow {
            return rule;
        }
        match (self.of_sources.contains(&rule), self.others.first(), self.others.len()) {
            (true, None, _) => rule,
            (false, Some(only), 1) => *only,
            _ => RULE_NONE,
        }
    }
}

/// All budgets in force, those of replies and bans last.
pub(super) fn budgets(
    datapath: &dyn Observed,
    effective: &EffectiveSet,
) -> Result<Vec<(String, RuleCounters)>> {
    let named = effective.budgets.iter().map(|budget| (budget.name.as_str(), budget.name.as_str()));
    let mut budgets = Vec::new();
    for (shown, name) in named.chain(OWN_BUDGETS) {
        if let Some(counters) = budget(datapath, effective, name)? {
            budgets.push((shown.to_owned(), counters));
        }
    }
    Ok(budgets)
}

/// Packets that each rule and budget with a soft limit has marked and passed.
pub(crate) fn marked(
    datapath: &dyn Observed,
    effective: &EffectiveSet,
) -> Result<Vec<(String, u64)>> {
    let is_soft = |limits: &Limits| limits.limits.iter().any(|limit| limit.upper.is_some());
    let mut marked = Vec::new();
    for of in &effective.rules {
        if of.rule.terms.limits().is_some_and(is_soft) {
            let packets = rule(datapath, of)?.marked.packets;
            marked.push((Subject::Rule(of.rule.path.clone()).to_string(), packets));
        }
    }
    for of in &effective.budgets {
        if is_soft(&of.limits)
            && let Some(counters) = budget(datapath, effective, &of.name)?
        {
            marked.push((Subject::Budget(of.name.clone()).to_string(), counters.marked.packets));
        }
    }
    Ok(marked)
}

/// All packets that passed, and all that were dropped.
pub(crate) fn verdicts(datapath: &dyn Observed) -> Result<(Tally, Tally)> {
    let (mut passed, mut dropped) = (Tally::default(), Tally::default());
    let tallies = datapath.reasons()?;
    for (reason, tally) in Reason::ALL.into_iter().zip(tallies) {
        match reason.verdict() {
            Verdict::Pass => passed.merge(tally),
            Verdict::Drop => dropped.merge(tally),
        }
    }
    Ok((passed, dropped))
}
