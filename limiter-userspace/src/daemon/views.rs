//! The daemon's state as the documents of the control interface.

mod census;
mod counted;
mod described;
mod exported;
mod limits;
mod listed;
mod metrics;
mod others;
mod stats;

pub(super) use counted::names as rule_names;

use std::net::IpAddr;
use std::path::PathBuf;

use limiter_common::bucket::{Generation, Slot};
use limiter_common::change::Changes;
use limiter_common::engine;
use limiter_common::gcra;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::{Bucket, Lane, Moment, Tally};

use super::datapath::Datapath;
use super::error::ServiceError;
use super::layers::EffectiveSet;
use super::why;
use crate::control::api::{
    Interface, InterfaceState, Reload, Reloads, SourceView, Sources, Status,
};
use crate::datapath::model::rehearsal::Holder;
use crate::datapath::{LinkState, Mode};
use crate::rules::Selector;

pub(super) use census::Census;
pub(super) use counted::{dropped_by, marked};
pub(super) use described::count_name;
use described::describe;
pub(super) use exported::RulesText;
pub(super) use limits::LimitsText;
pub(super) use listed::ListsText;
pub(super) use metrics::{Facts, Trials, metrics};
pub(super) use others::with_others;
pub(super) use stats::StatsText;

type Result<T> = std::result::Result<T, ServiceError>;

impl Status {
    /// Adds what only the service knows.
    pub(super) fn with(
        self,
        rules_files: &[PathBuf],
        edits: usize,
        management: Vec<String>,
        last_reload: Reload,
    ) -> Self {
        Self {
            rules_files: rules_files.iter().map(|path| path.display().to_string()).collect(),
            edits,
            management,
            last_reload,
            ..self
        }
    }
}

pub(super) fn status(datapath: &dyn Datapath, effective: &EffectiveSet) -> Result<Status> {
    let interfaces = datapath
        .attachments()
        .iter()
        .map(|at| Interface {
            name: at.interface.clone(),
            mode: mode(at.mode).to_owned(),
            ifindex: at.ifindex,
            program_id: at.program_id,
            adopted: at.adopted,
            attached: at.state.is_attached(),
            state: state(at.state),
            was: (at.asked != at.interface).then(|| at.asked.clone()),
        })
        .collect();
    Ok(Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        generation: datapath.generation(),
        rules: effective.len(),
        brake: datapath.brake().map_err(ServiceError::Datapath)?,
        interfaces,
        sources: Sources { max_v4: datapath.max_sources(), max_v6: datapath.max_sources() },
        rules_files: Vec::new(),
        pin_dir: None,
        edits: 0,
        management: Vec::new(),
        warnings: effective.warnings.clone(),
        over_soft_limit: Vec::new(),
        no_room_for: Vec::new(),
        last_reload: Reload { ok: true, error: None },
        applied: false,
        reloads: Reloads::default(),
        watch: None,
        trial: None,
        last_trial: None,
    })
}

const fn state(state: LinkState) -> InterfaceState {
    match state {
        LinkState::Attached => InterfaceState::Attached,
        LinkState::Elsewhere => InterfaceState::Elsewhere,
        LinkState::Unseen => InterfaceState::Unseen,
        LinkState::Detached => InterfaceState::Detached,
        LinkState::Gone => InterfaceState::Gone,
    }
}

/// By table of entries, the packets that got none.
pub(super) fn refused(datapath: &dyn Datapath) -> Result<Vec<(String, u64)>> {
    Lane::ALL
        .into_iter()
        .map(|lane| {
            let counts = datapath.admission(lane).map_err(ServiceError::Datapath)?;
            Ok((lane_name(lane).to_owned(), counts.over_budget.wrapping_add(counts.full)))
        })
        .collect()
}

/// What a table of entries is called.
const fn lane_name(lane: Lane) -> &'static str {
    match lane {
        Lane::V4 => "IPv4 sources",
        Lane::V6 => "IPv6 sources",
        Lane::Keyed => "keys of tables",
    }
}

/// All packets that passed, and all that were dropped.
pub(super) fn verdicts(datapath: &dyn Datapath) -> Result<(Tally, Tally)> {
    let (mut passed, mut dropped) = (Tally::default(), Tally::default());
    let tallies = datapath.reasons().map_err(ServiceError::Datapath)?;
    for (reason, tally) in Reason::ALL.into_iter().zip(tallies) {
        match reason.verdict() {
            Verdict::Pass => passed.merge(tally),
            Verdict::Drop => dropped.merge(tally),
        }
    }
    Ok((passed, dropped))
}

/// `native` or `generic`.
pub(super) const fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Native => "native",
        Mode::Generic => "generic",
    }
}

pub(super) fn source(
    datapath: &dyn Datapath,
    effective: &EffectiveSet,
    address: IpAddr,
) -> Result<SourceView> {
    let selector = Selector::address(address);
    let bucket = datapath.bucket(&key(address)).map_err(ServiceError::Datapath)?;
    let in_force = effective.resolve(&selector);
    let mut view = SourceView {
        source: selector.to_string(),
        tracked: bucket.is_some(),
        rule: in_force.map(|in_force| in_force.rule.selector.to_string()),
        limit: None,
        burst: None,
        count: None,
        effective_per_second: None,
        shadow: in_force.is_some_and(|in_force| in_force.rule.action.is_shadow()),
        listed: None,
        passed: bucket.map_or(0, |bucket| bucket.passed),
        dropped: bucket.map_or(0, |bucket| bucket.dropped),
        remaining: None,
        full_in_ns: 0,
        limits: Vec::new(),
        action: None,
        budget: None,
        banned_seconds: None,
        martian: false,
        other_rules: Vec::new(),
        other_rules_in_all: 0,
    };
    let Some(in_force) = in_force else {
        return Ok(view);
    };
    let described = describe(&in_force.rule.action.terms(), datapath.max_frame());
    view.limit = Some(described.limit);
    view.burst = described.burst;
    view.count = described.count;
    view.effective_per_second = described.effective_per_second;
    view.limits = described.limits;
    view.action = described.action;
    view.budget = described.budget;
    let Some(rule) = datapath.installed().rules.get(&in_force.rule.selector) else {
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
fn keyed_source(view: SourceView, datapath: &dyn Datapath, address: IpAddr) -> Result<SourceView> {
    let looked = why::keyed_source(datapath, address)?;
    let counted = looked.as_ref().and_then(|looked| looked.counted);
    let held = looked.and_then(|looked| looked.held).filter(|held| held.holder == Holder::Key);
    let first = held.and_then(|held| held.limits.first().copied()).filter(|_| counted.is_some());
    let left = |burst: u64| first.map_or(burst, |first| first.remaining.min(burst));
    let [passed, dropped] = counted.unwrap_or_default();
    Ok(SourceView {
        tracked: counted.is_some(),
        passed,
        dropped,
        remaining: view.burst.map(left),
        full_in_ns: first.and_then(|first| first.full_in).map_or(0, nanos_up),
        ..view
    })
}

/// When rule sets came into force; one that cannot be read is not known.
struct Moments<'d>(&'d dyn Datapath);

impl Changes for Moments<'_> {
    fn moment(&self, generation: u32) -> Moment {
        self.0.reading().moment(generation).unwrap_or_default()
    }
}

/// The TAT that the next packet of a source would meet at `now`, its rule being in `slot`.
fn arrival(datapath: &dyn Datapath, bucket: &Bucket, slot: u32, now: Ticks) -> Ticks {
    let generation = Generation::new(datapath.generation());
    let limit_in = |slot: Slot| datapath.limit(slot.index()).ok();
    engine::arrival(&Moments(datapath), bucket, (Slot::new(slot), generation), limit_in, now)
}

/// Rounded up: "0 ns" is to mean full.
fn nanos_up(ticks: Ticks) -> u64 {
    let whole = ticks.as_nanos();
    whole + u64::from(Ticks::from_nanos(whole) < ticks)
}

/// The source that packets from an address are charged to.
pub(super) fn key(address: IpAddr) -> Source {
    match address.to_canonical() {
        IpAddr::V4(v4) => Source::V4(v4.octets()),
        IpAddr::V6(v6) => {
            let [prefix, _host]: [[u8; 8]; 2] = bytemuck::cast(v6.octets());
            Source::V6(prefix)
        }
    }
}
