//! `limiter list`, `stats` and `show` without a daemon: the same answers as the daemon's, computed
//! from the pinned maps.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use limiter_api::limits::Limits;
use limiter_api::sources::source::SourceView;
use limiter_api::stats::Stats;
use limiter_common::bucket::Generation;
use limiter_common::time::Ticks;
use limiter_common::wire::{Control, Listed, Table, is_daemon_lost};
use limiter_datapath::Observed;
use limiter_rules::Selector;
use limiter_rules::read_back::{Beside, read_back};
use serde::de::DeserializeOwned;

use super::{LimitsText, Reported, StatsText};
use crate::control::{Refusal, Step};
use crate::error::ServiceError;
use crate::lists::bans;
use crate::lists::request_bans::RequestRules;
use crate::rule_sets::effective::EffectiveSet;
use crate::sources::{Accounts, Ledger, Rules};
use crate::views;

/// Facts missing in every answer from the maps.
const NOT_HELD: &str = "names, labels and origins of rules, until when they are in force, the \
                        order of their keys, rules that no packet can find, reasons of list \
                        entries, warnings, and what events reported of drops";

/// Fact missing in answers with budgets.
const NO_NAMES: &str = "names of budgets: (unknown 1) and so on stand for them";

/// Answers `limiter list` without a daemon.
pub fn limits(maps: &dyn Observed) -> Result<Limits, Refusal> {
    let limits: Limits = reported::<LimitsText, _>(maps)?;
    Ok(Limits { unknown: unknown(), ..limits })
}

/// Facts that the maps do not hold.
pub fn unknown() -> Vec<String> {
    vec![NOT_HELD.to_owned(), NO_NAMES.to_owned()]
}

/// Answers `limiter stats` without a daemon.
pub fn stats(maps: &dyn Observed) -> Result<Stats, Refusal> {
    Ok(reported::<StatsText, _>(maps)?)
}

/// Answers `limiter show` without a daemon.
pub fn source(maps: &dyn Observed, address: IpAddr) -> Result<SourceView, Refusal> {
    let effective = effective(maps)?;
    let source = views::key(address);
    let mut read = Accounts::of([source]);
    while !read.step(maps)? {}
    let accounts = read.take(&Ledger::open(maps, &effective, None))?;
    let account = accounts.get(&source).cloned().unwrap_or_default();
    let rules = Rules::of(maps, &effective);
    let counted = (account.total(), account.by_rule(&rules));
    let banned_by = bans::author(maps, &effective, &RequestRules::default(), address)?;
    let view = views::whole(maps, &effective, address, counted)?;
    // The maps hold no events, so the drop reasons without counts by source may concern this
    // source.
    let by = views::dropped_by(maps)?;
    let others = by.others != Some(0) || by.lists > 0;
    let rows = account.source_rows(&view, &rules);
    let dropped_at_least = view.dropped_at_least || others;
    Ok(SourceView { banned_by, rows, dropped_at_least, ..view })
}

/// Time left of the trial of the rules in force; `None` if they are not on trial.
pub fn trial_left(maps: &dyn Observed) -> Result<Option<Duration>, Refusal> {
    if !maps.header().map_err(ServiceError::from)?.is_on_trial() {
        return Ok(None);
    }
    let end = Ticks::new(maps.control(Control::TrialEnd).map_err(ServiceError::from)?);
    Ok(Some(Duration::from_nanos(end.since(maps.now()).as_nanos())))
}

/// Returns true if the rules in force only count, because the daemon has given no sign of life for
/// too long.
pub fn daemon_lost(maps: &dyn Observed) -> Result<bool, Refusal> {
    if !maps.header().map_err(ServiceError::from)?.asks_for_daemon() {
        return Ok(false);
    }
    let word = maps.control(Control::DaemonLost).map_err(ServiceError::from)?;
    Ok(is_daemon_lost(word, maps.now()))
}

fn effective(maps: &dyn Observed) -> Result<EffectiveSet, ServiceError> {
    let header = maps.header()?;
    let generation = Generation::new(maps.generation());
    let tables = (0..header.tables()).map(|index| maps.table(generation, index));
    let tables: Vec<Option<Table>> = tables.collect::<Result<_, _>>()?;
    let tables: Vec<Table> = tables.into_iter().flatten().collect();
    let interface_name = |index| maps.interface_name(index);
    let beside = Beside { header, tables: &tables, interface_name: &interface_name };
    let mut lists = maps.list_entries()?;
    lists.retain(|(_, entry)| entry.at(maps.now()) == Some(Listed::Management));
    let management: BTreeSet<Selector> = lists.into_iter().map(|(selector, _)| selector).collect();
    Ok(EffectiveSet::read_back(read_back(maps.installed(), beside), &management))
}

/// Assembles a document that the daemon would send in parts.
fn reported<T: Reported, D: DeserializeOwned>(maps: &dyn Observed) -> Result<D, ServiceError> {
    let effective = Arc::new(effective(maps)?);
    let mut reporting = T::over(maps, &effective);
    let mut text = Vec::new();
    loop {
        match reporting.step_of(maps, &effective)? {
            Step::Part(part) => text.extend_from_slice(&part),
            Step::Again | Step::After(_) => {}
            Step::Done => break,
        }
    }
    Ok(serde_json::from_slice(&text)?)
}
