//! A source: its limit and its bucket now.

use std::net::IpAddr;

use limiter_common::bucket::{Generation, Slot};
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::wire::{Bucket, ListEntry};
use limiter_datapath::Observed;
use limiter_decision::{engine, gcra};
use limiter_model::Holder;
use limiter_rules::Selector;

use super::described::describe;
use super::keys::key;
use super::others::with_others;
use super::told::Result;
use crate::api::lists::ListName;
use crate::api::source::{RuleDrops, SourceView};
use crate::api::sources::OtherDrops;
use crate::effective::EffectiveSet;
use crate::lists;
use crate::why;

/// The drops of one source, without its name.
pub(crate) fn of_rules(drops: Vec<OtherDrops>) -> Vec<RuleDrops> {
    drops.into_iter().map(|row| row.drops).collect()
}

/// All of a source that the maps hold.
pub(crate) fn whole(
    datapath: &dyn Observed,
    effective: &EffectiveSet,
    address: IpAddr,
) -> Result<SourceView> {
    let listed = listed(datapath, &key(address))?;
    let view = SourceView { listed, ..view(datapath, effective, address)? };
    with_others(view, datapath, effective, address)
}

/// A source by itself, without what is asked before its rule.
pub(crate) fn view(
    datapath: &dyn Observed,
    effective: &EffectiveSet,
    address: IpAddr,
) -> Result<SourceView> {
    let selector = Selector::address(address);
    let bucket = datapath.bucket(&key(address))?;
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
        passed: bucket.map_or(0, |bucket| bucket.passed),
        dropped: bucket.map_or(0, |bucket| bucket.dropped),
        remaining: None,
        full_in_ns: 0,
        here: None,
        remaining_here: None,
        limits: Vec::new(),
        action: None,
        budget: None,
        banned_seconds: None,
        martian: false,
        other_rules: Vec::new(),
        other_rules_in_all: 0,
        by_rule: None,
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
        return keyed_source(view, datapath, address);
    };
    let burst = described.burst.filter(|_| !rule.limit.is_unlimited());
    view.remaining = burst;
    if let Some(bucket) = bucket
        && !rule.limit.is_unlimited()
    {
        let now = datapath.now();
        let tat = arrival(datapath, &bucket, rule.slot, now);
        // The compiled tolerance may round to a unit more than the burst; people know the burst.
        view.remaining = burst.map(|burst| gcra::remaining(&rule.limit, tat, now).min(burst));
        view.full_in_ns = nanos_up(tat.since(now));
    }
    Ok(view)
}

/// Adds the state of a source whose rule is in a keyed table: of the first limit, how much is left.
fn keyed_source(view: SourceView, datapath: &dyn Observed, address: IpAddr) -> Result<SourceView> {
    let looked = why::keyed_source(datapath, address)?;
    let counted = looked.as_ref().and_then(|looked| looked.counted);
    let held = looked.and_then(|looked| looked.held);
    let shared = held.as_ref().is_some_and(|held| held.record.leased & 1 != 0);
    let held = held.filter(|held| held.holder == Holder::Key);
    let first = held.and_then(|held| held.limits.first().copied()).filter(|_| counted.is_some());
    let left = |burst: u64| first.map_or(burst, |first| first.remaining.min(burst));
    let [passed, dropped] = counted.unwrap_or_default();
    let view = SourceView { tracked: counted.is_some(), passed, dropped, ..view };
    if shared {
        let here = first.and_then(|first| why::here(first.standing));
        return Ok(SourceView { here, remaining_here: first.map(|first| first.remaining), ..view });
    }
    Ok(SourceView {
        remaining: view.burst.map(left),
        full_in_ns: first.and_then(|first| first.full_in).map_or(0, nanos_up),
        ..view
    })
}

/// The TAT that the next packet of a source would meet at `now`, its rule being in `slot`.
fn arrival(datapath: &dyn Observed, bucket: &Bucket, slot: u32, now: Ticks) -> Ticks {
    let generation = Generation::new(datapath.generation());
    let limit_in = |slot: Slot| datapath.limit(slot).ok().flatten();
    // A moment that cannot be read is not known.
    let moment = |generation| datapath.moment(generation).unwrap_or_default();
    engine::arrival(bucket, (Slot::new(slot), generation), limit_in, moment, now)
}

/// Rounded up: "0 ns" is to mean full.
fn nanos_up(ticks: Ticks) -> u64 {
    let whole = ticks.as_nanos();
    whole + u64::from(Ticks::from_nanos(whole) < ticks)
}

/// The list that a source is on, before any rule: as the program asks for it.
fn listed(datapath: &dyn Observed, source: &Source) -> Result<Option<ListName>> {
    let now = datapath.now();
    let in_force = |entry: &ListEntry| entry.at(now).is_some();
    let entry = match datapath.listed(source)?.filter(in_force) {
        Some(own) => Some(own),
        None => datapath.listed_around(source)?.filter(in_force),
    };
    Ok(entry.and_then(|entry| entry.at(now)).map(lists::name))
}
