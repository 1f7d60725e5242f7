//! A source: its limit and its present bucket.

use std::net::IpAddr;

use limiter_api::explain::ExplainLimit;
use limiter_api::lists::RULE_FILE;
use limiter_api::sources::RuleDrops;
use limiter_api::sources::source::{SourceView, Total};
use limiter_common::bucket::{Generation, Slot};
use limiter_common::frame_size::FrameSize;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::wire::{Bucket, ListEntry};
use limiter_datapath::Observed;
use limiter_decision::engine;
use limiter_model::{Holder, LookedLimit};
use limiter_rules::Selector;

use super::described::describe;
use super::keys::key;
use super::others::with_others;
use super::reported::Result;
use crate::lists;
use crate::rule_sets::effective::{Effective, EffectiveSet};
use crate::why;

/// Bytes of the shortest frame.
const SHORTEST: u64 = 60;

/// The complete view of a source: from the maps, with the given counts.
pub(crate) fn whole(
    datapath: &dyn Observed,
    effective: &EffectiveSet,
    address: IpAddr,
    (total, by_rule): (Total, Vec<RuleDrops>),
) -> Result<SourceView> {
    let entry = listed(datapath, &key(address))?;
    let listed = entry.and_then(|entry| entry.at(datapath.now())).map(lists::name);
    let of_file = entry.is_some_and(|entry| entry.is_of_rule_file());
    let listed_by = of_file.then(|| RULE_FILE.to_owned());
    let view = SourceView { listed, listed_by, by_rule, ..view(datapath, effective, address)? };
    Ok(with_others(view, datapath, effective, address)?.counted(total))
}

/// A view of a source by itself, without the checks before its rule and without its counts.
pub(crate) fn view(
    datapath: &dyn Observed,
    effective: &EffectiveSet,
    address: IpAddr,
) -> Result<SourceView> {
    let selector = Selector::address(address);
    let bucket = datapath.bucket(key(address))?;
    let in_force = effective.resolve(&selector);
    let mut view = SourceView {
        source: selector.to_string(),
        tracked: bucket.is_some(),
        rule: in_force.map(|in_force| in_force.rule.path.to_string()),
        rule_name: in_force.and_then(|in_force| in_force.rule.called()),
        limit: None,
        burst: None,
        count: None,
        effective_per_second: None,
        shadow: in_force.is_some_and(|in_force| in_force.rule.terms.is_shadow()),
        listed: None,
        listed_reason: None,
        listed_by: None,
        listed_beside: Vec::new(),
        passed: 0,
        dropped: 0,
        passed_at_least: true,
        dropped_at_least: true,
        remaining: None,
        of: None,
        left: Vec::new(),
        full_in_ns: 0,
        here: None,
        remaining_here: None,
        limits: Vec::new(),
        action: None,
        budget: None,
        banned_seconds: None,
        banned_by: None,
        martian: false,
        other_rules: Vec::new(),
        other_rules_in_all: 0,
        by_rule: Vec::new(),
        rows: Vec::new(),
    };
    let Some(in_force) = in_force else {
        return Ok(view);
    };
    let described = describe(&in_force.rule.terms, datapath.max_frame()).known(in_force.known());
    view.limit = Some(described.limit);
    view.burst = described.burst;
    view.count = described.count;
    view.effective_per_second = described.effective_per_second;
    view.limits = described.limits;
    view.action = described.action;
    view.budget = described.budget;
    let selector = in_force.rule.path.selector();
    let Some(rule) = selector.and_then(|selector| datapath.installed().rules.get(&selector)) else {
        return keyed_source(view, datapath, (effective, in_force), address);
    };
    let (Some(first), false) = (view.limits.first(), rule.limit.is_unlimited()) else {
        return Ok(view);
    };
    let now = datapath.now();
    let tat = bucket.map_or(Ticks::ZERO, |bucket| arrival(datapath, &bucket, rule.slot, now));
    let meter = LookedLimit::of_source(&rule.limit, tat, now, FrameSize::of_packet(SHORTEST));
    let limit = why::line(first.text.clone(), first.burst, rule.limit.counts(), meter);
    Ok(with_left(view, vec![limit]))
}

/// Adds the remainder of each limit, and that of the limit with the least left.
fn with_left(view: SourceView, left: Vec<ExplainLimit>) -> SourceView {
    // Compared in parts of the limit's size; a limit without a size counts as full or empty.
    let part = |limit: &ExplainLimit| match limit.size {
        Some(size) => u128::from(limit.remaining) * 1_000_000_000 / u128::from(size.max(1)),
        None => u128::from(limit.remaining.min(1)) * 1_000_000_000,
    };
    let own = left.iter().filter(|limit| limit.here.is_none());
    let Some(least) = own.min_by_key(|limit| part(limit)) else {
        return SourceView { left, ..view };
    };
    SourceView {
        remaining: Some(least.remaining),
        of: least.size,
        count: Some(least.count.clone()),
        full_in_ns: least.full_in_ns.unwrap_or(0),
        left,
        ..view
    }
}

/// Adds the state of a source whose rule is in a keyed table: the remainder of its limits, and of
/// the budget to which it is charged.
fn keyed_source(
    view: SourceView,
    datapath: &dyn Observed,
    (effective, in_force): (&EffectiveSet, &Effective),
    address: IpAddr,
) -> Result<SourceView> {
    let looked = why::keyed_source(datapath, address)?;
    let tracked = looked.as_ref().is_some_and(|looked| looked.counted.is_some());
    let held = looked.and_then(|looked| looked.held);
    let view = SourceView { tracked, ..view };
    let Some(held) = held.filter(|held| held.holder != Holder::Strangers) else {
        return Ok(view);
    };
    let budget = effective.budgets.iter().find(|at| Some(&at.name) == view.budget.as_ref());
    let limits = budget.map(|budget| &budget.limits).or_else(|| in_force.rule.terms.limits());
    let Some(limits) = limits else { return Ok(view) };
    let shared = held.record.leased & 1 != 0;
    if shared && !tracked {
        return Ok(view);
    }
    let left = why::lines(&held, limits, budget.map(|budget| budget.name.as_str()));
    let here = left.first().and_then(|first| Some((first.here?, first.remaining)));
    let view = match here {
        Some((here, remaining)) => {
            SourceView { here: Some(here), remaining_here: Some(remaining), ..view }
        }
        None => view,
    };
    Ok(with_left(view, left))
}

/// The TAT that the next packet of a source would find at `now`, if its rule is in `slot`.
fn arrival(datapath: &dyn Observed, bucket: &Bucket, slot: u32, now: Ticks) -> Ticks {
    let generation = Generation::new(datapath.generation());
    let limit_in = |slot: Slot| datapath.limit(slot).ok().flatten();
    // A moment that cannot be read counts as unknown.
    let moment = |generation| datapath.moment(generation).ok().flatten().unwrap_or_default();
    engine::arrival(bucket, (Slot::new(slot), generation), limit_in, moment, now)
}

/// The entry that decides on a source before any rule, found as the program does.
fn listed(datapath: &dyn Observed, source: &Source) -> Result<Option<ListEntry>> {
    let now = datapath.now();
    let in_force = |entry: &ListEntry| entry.at(now).is_some();
    match datapath.listed(*source)?.filter(in_force) {
        Some(own) => Ok(Some(own)),
        None => Ok(datapath.listed_around(*source)?.filter(in_force)),
    }
}
