//! What the program would do with the next packet of a source, as far as that follows from the source
//! alone. In the order in which the program asks: [`limiter_common::engine::gate`].

use std::net::IpAddr;

use limiter_common::gcra::{self, Charge};
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::{Lane, Limit, ListEntry, Listed};

use super::{Result, arrival, key};
use crate::control::api::Origin;
use crate::control::api::check::Checked;
use crate::control::api::lists::ListName;
use crate::daemon::datapath::Datapath;
use crate::daemon::error::ServiceError;
use crate::daemon::layers::{Effective, EffectiveSet};
use crate::rules::model::{Limits, Martians, Over, Path, limit_text, over_text};
use crate::rules::{KeyedRule, RateLimit, Selector, Terms};

/// The reason where the answer is up to something that was not looked at.
const UNKNOWN: &str = "unknown";

/// How many things that were not looked at are named.
const NAMED: usize = 16;

/// What is asked.
#[derive(Debug)]
pub(in crate::daemon) struct Asked {
    /// Of whom.
    pub(in crate::daemon) address: IpAddr,
    /// Bytes of the frame.
    pub(in crate::daemon) length: u64,
    /// What the lists say of it.
    pub(in crate::daemon) listed: Option<ListEntry>,
}

pub(in crate::daemon) fn check(
    datapath: &dyn Datapath,
    effective: &EffectiveSet,
    asked: &Asked,
) -> Result<Checked> {
    let selector = Selector::address(asked.address);
    let source = key(asked.address);
    let now = datapath.now();
    let mut checked = Checked { source: selector.to_string(), exact: true, ..Checked::default() };
    if datapath.brake().map_err(ServiceError::Datapath)? {
        return Ok(checked.with(Reason::Brake));
    }
    if now.is_past_range() {
        return Ok(checked.with(Reason::Untracked));
    }
    let in_force = effective.resolve(&selector);
    let managed = in_force.is_some_and(|in_force| in_force.origin == Origin::Management);
    match asked.listed.and_then(|entry| Some((entry, entry.at(now)?))) {
        // Inside of a wider prefix that is denied, a management prefix is the longer one.
        Some((entry, Listed::Deny)) if !managed => {
            checked.listed = Some(ListName::Deny);
            return Ok(checked.shut(Reason::Denied, entry.expires().map(|end| end.since(now))));
        }
        Some((_, Listed::Allow)) => {
            checked.listed = Some(ListName::Allow);
            return Ok(checked.with(Reason::Allowed));
        }
        _ if managed => return Ok(checked.with(Reason::Allowed)),
        _ => {}
    }
    if let Some(ban) = datapath.ban(&source).map_err(ServiceError::Datapath)?
        && Ticks::new(ban.until) > now
    {
        return Ok(checked.shut(Reason::Banned, Some(Ticks::new(ban.until).since(now))));
    }
    if effective.martians == Some(Martians::Drop) && source.is_martian() {
        return Ok(checked.shut(Reason::Martian, None));
    }
    let mut checked = match in_force {
        None => checked.with(Reason::NoRule),
        Some(in_force) => rule(datapath, in_force, asked, source, checked)?,
    };
    if checked.passes {
        checked.not_looked_at.extend(tables(effective, &selector));
        let more = checked.not_looked_at.len().saturating_sub(NAMED);
        if more > 0 {
            checked.not_looked_at.truncate(NAMED);
            checked.not_looked_at.push(format!("{more} more rules"));
        }
        checked.exact = checked.not_looked_at.is_empty();
    }
    Ok(checked)
}

/// What the rule of the source table does.
fn rule(
    datapath: &dyn Datapath,
    in_force: &Effective,
    asked: &Asked,
    source: Source,
    mut checked: Checked,
) -> Result<Checked> {
    checked.rule = Some(in_force.rule.selector.to_string());
    let limits = match in_force.rule.action.terms() {
        Terms::Unlimited => return Ok(checked.with(Reason::Unlimited)),
        Terms::Budget(name) => {
            checked.not_looked_at.push(format!("budget {name}"));
            return Ok(checked.unknown());
        }
        Terms::Limits(limits) => limits,
    };
    checked.action = Some(over_text(&limits.over));
    // The first limit, if the source table holds it, has a bucket that can be read.
    let first = limits.in_source_table();
    let installed = datapath.installed().rules.get(&in_force.rule.selector);
    let skipped = usize::from(first.is_some());
    let others: Vec<_> = limits
        .limits
        .iter()
        .skip(skipped)
        .map(|limit| format!("limit {}", limit_text(limit)))
        .collect();
    let (Some(rate), Some(installed)) = (first, installed) else {
        checked.not_looked_at.extend(others);
        return Ok(checked.unknown());
    };
    let now = datapath.now();
    let bucket = datapath.bucket(&source).map_err(ServiceError::Datapath)?;
    let tat = match &bucket {
        Some(bucket) => arrival(datapath, bucket, installed.slot, now),
        None => Ticks::ZERO,
    };
    if bucket.is_none() && may_share(datapath, source)? {
        checked.not_looked_at.push("the bucket that new sources share in a flood".to_owned());
    }
    let mut checked = checked.of_bucket(&rate, &installed.limit, tat, now);
    let conforms = Charge::new(&installed.limit, now, installed.limit.units(asked.length));
    if conforms.apply(tat).is_some() {
        // Any limit that trips is enough.
        checked.not_looked_at.extend(others);
        return Ok(checked.with(Reason::Conforming));
    }
    let over = over(&limits);
    if over == Reason::Class {
        checked.not_looked_at.push(format!("the budget of {}", over_text(&limits.over)));
    }
    checked = checked.with(over);
    if !checked.passes {
        let wait = until_conforming(&installed.limit, tat, now, asked.length);
        checked.retry_after_seconds = wait.map(|wait| seconds_up(wait).max(1));
    }
    Ok(checked)
}

/// Whether a source without a bucket may get none, or one with what it used up of a shared one: only
/// where a packet of its family was ever refused an entry.
fn may_share(datapath: &dyn Datapath, source: Source) -> Result<bool> {
    let lane = if matches!(source, Source::V4(_)) { Lane::V4 } else { Lane::V6 };
    let counts = datapath.admission(lane).map_err(ServiceError::Datapath)?;
    Ok(counts.over_budget != 0 || counts.full != 0)
}

/// What becomes of a packet over a limit.
fn over(limits: &Limits) -> Reason {
    if limits.shadow {
        return Reason::Shadow;
    }
    match &limits.over {
        Over::Drop | Over::Reject | Over::Ban(_) => Reason::OverLimit,
        Over::Mark(_) => Reason::Marked,
        Over::Class(_) => Reason::Class,
        Over::Interface(_) | Over::Cpu(_) => Reason::Redirected,
    }
}

/// The rules of other tables that may stop a packet of a source: that is up to the packet.
fn tables(effective: &EffectiveSet, source: &Selector) -> Vec<String> {
    let may = |path: &Path| {
        let net = path.source().and_then(|(_, net)| net);
        net.is_none_or(|net| {
            Selector::Prefix(net).contains(source) || source.contains(&Selector::Prefix(net))
        })
    };
    let stops = |rule: &&KeyedRule| match &rule.terms {
        Terms::Unlimited => false,
        Terms::Budget(_) => true,
        Terms::Limits(limits) => !limits.shadow,
    };
    let rules = effective.keyed.iter().filter(stops).filter(|rule| may(&rule.path));
    rules.map(|rule| format!("rule for {}", rule.path)).collect()
}

/// The time after which a frame of `length` bytes would conform; none where it never does.
fn until_conforming(limit: &Limit, tat: Ticks, now: Ticks, length: u64) -> Option<Ticks> {
    let cost = gcra::cost(limit, limit.units(length));
    let tolerance = Ticks::new(limit.tolerance);
    // Conforms at t when max(tat, t) + cost <= t + tolerance.
    (cost <= tolerance).then(|| tat.since(tolerance.since(cost)).since(now))
}

/// Whole seconds, rounded up.
fn seconds_up(time: Ticks) -> u64 {
    super::nanos_up(time).div_ceil(1_000_000_000)
}

impl Checked {
    fn with(self, reason: Reason) -> Self {
        let passes = matches!(reason.verdict(), Verdict::Pass);
        Self { passes, reason: reason.name().to_owned(), ..self }
    }

    fn unknown(self) -> Self {
        Self { passes: true, reason: UNKNOWN.to_owned(), ..self }
    }

    /// Nothing passes, for `time` or for ever.
    fn shut(self, reason: Reason, time: Option<Ticks>) -> Self {
        let seconds = time.map(|time| seconds_up(time).max(1));
        Self {
            limit: Some(0),
            remaining: Some(0),
            reset_in_seconds: seconds,
            retry_after_seconds: seconds,
            ..self.with(reason)
        }
    }

    fn of_bucket(self, rate: &RateLimit, limit: &Limit, tat: Ticks, now: Ticks) -> Self {
        Self {
            count: Some(super::described::count_name(rate.count).to_owned()),
            limit: Some(rate.burst),
            // As in `source`.
            remaining: Some(gcra::remaining(limit, tat, now).min(rate.burst)),
            reset_in_seconds: Some(seconds_up(tat.since(now))),
            ..self
        }
    }
}
