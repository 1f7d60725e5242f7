//! A source: its limit and its bucket now.

use std::net::IpAddr;

use axum::extract::{Extension, State};
use axum::routing::get;
use limiter_common::bucket::{Generation, Slot};
use limiter_common::time::Ticks;
use limiter_common::wire::Bucket;
use limiter_decision::{engine, gcra};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::explain::Here;
use super::limits::LimitView;
use super::lists::ListName;
use super::sources::OtherDrops;
use super::{Shared, words};
use crate::control::{
    Answer, Asked, JSON, Named, Peer, Refusal, Routes, Sliced, Step, read, sliced,
};
use crate::daemon::error::ServiceError;
use crate::daemon::layers::EffectiveSet;
use crate::daemon::service::Service;
use crate::daemon::sources::ByRule;
use crate::daemon::views::{self, describe};
use crate::daemon::why;
use crate::datapath::Observed;
use crate::datapath::model::Holder;
use crate::render::{Render, duration, number, push, rate, table, titled};
use crate::rules::plain::clean;
use crate::rules::{Selector, source_text};

/// `GET /v1/sources/{address}`: one source, its limit and its bucket now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Source)]
pub struct SourceView {
    /// The source: an IPv4 address or an IPv6 /64.
    pub source: String,
    /// True if it has a bucket; without one nothing is used up.
    pub tracked: bool,
    /// The rule that it falls under, if any.
    pub rule: Option<String>,
    /// The name that the author of the rule gave it.
    #[serde(default)]
    pub rule_name: Option<String>,
    /// The rate, or `unlimited`.
    pub limit: Option<String>,
    /// Packets or bytes at once.
    pub burst: Option<u64>,
    /// `packets` or `bytes`.
    pub count: Option<String>,
    /// The rate that the program really holds, per second.
    pub effective_per_second: Option<f64>,
    /// True if the rule only counts.
    pub shadow: bool,
    /// The list that it is on, before any rule.
    pub listed: Option<ListName>,
    /// The reason that was given for that; none if none was.
    #[serde(default)]
    pub listed_reason: Option<String>,
    /// Packets of it that passed since it is tracked.
    pub passed: u64,
    /// Packets of it that were dropped since it is tracked.
    pub dropped: u64,
    /// Packets or bytes that would pass at once now; none without a limit, and for one over all
    /// nodes.
    pub remaining: Option<u64>,
    /// Nanoseconds until the whole burst is there again; 0 where `remaining` is none.
    pub full_in_ns: u64,
    /// Base of this node's decisions, of a limit over all nodes.
    #[serde(default)]
    pub here: Option<Here>,
    /// Packets or bytes that would pass by that at once now.
    #[serde(default)]
    pub remaining_here: Option<u64>,
    /// All limits of the rule; `limit`, `burst` and `remaining` are about the first.
    #[serde(default)]
    pub limits: Vec<LimitView>,
    /// Action over the limits; none without limits of its own.
    #[serde(default)]
    pub action: Option<String>,
    /// The budget that it is charged to, if any.
    #[serde(default)]
    pub budget: Option<String>,
    /// Whole seconds until its ban ends, rounded up; none if it is not banned.
    #[serde(default)]
    pub banned_seconds: Option<u64>,
    /// True if no host can have it, and the rules say that such sources are dropped.
    #[serde(default)]
    pub martian: bool,
    /// Rules on other keys, of all packets or of this source's, that may drop packets of it: the
    /// first of them. `passed` and `dropped` do not tell of these.
    #[serde(default)]
    pub other_rules: Vec<String>,
    /// Number of all such rules.
    #[serde(default)]
    pub other_rules_in_all: u64,
    /// Drops of it by other rules, where that was asked for.
    #[serde(default)]
    pub by_rule: Option<Vec<RuleDrops>>,
}

/// Drops of a source by one rule on other keys, or before any rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleDrops {
    /// The rule, or the budget; none where no rule was asked, as on the deny list.
    pub rule: Option<String>,
    /// The name that the author of the rule gave it.
    #[serde(default)]
    pub rule_name: Option<String>,
    /// Reason of the drops, as in `limiter stats`.
    pub reason: String,
    /// Packets that passed; none in a sample.
    pub passed: Option<u64>,
    /// Packets that were dropped: all of the buckets that there are, or those that events told.
    pub dropped: u64,
    /// Keys with a bucket of their own, such as ports; none in a sample.
    pub keys: Option<u64>,
    /// True if the program has counted them; false of a sample, which is a part.
    pub exact: bool,
}

impl RuleDrops {
    /// The rule with its name, clean for a terminal.
    pub(crate) fn title(&self) -> String {
        clean(&titled(self.rule.as_deref(), self.rule_name.as_deref()))
    }

    /// The remark of a sample.
    pub(crate) const fn said(&self) -> &'static str {
        if self.exact { "" } else { "sampled: there may be more" }
    }
}

/// The query of `GET /v1/sources/{address}`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams,
)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct AskSource {
    /// True for `by_rule`, which takes a pass over all keys of tables.
    pub by_rule: bool,
}

pub(super) fn routes() -> Routes<Service> {
    // An IPv6 source is printed with its length: /v1/sources/2001:db8::/64.
    Routes::default().at("/v1/sources/{*address}", get(source))
}

/// One source, and what is left of its limit
#[utoipa::path(
    get,
    path = "/v1/sources/{address}",
    params(
        ("address" = words::AnySource, Path, description = "An address, or an IPv6 /64."),
        AskSource
    ),
    responses(
        (status = 200, description = "Done.", body = SourceView),
        (status = 404, description = "There is no such thing.")
    )
)]
pub(super) async fn source(
    State(service): State<Shared>,
    Extension(peer): Extension<Peer>,
    Named(address): Named,
    Asked(asked): Asked<AskSource>,
) -> Answer {
    if asked.by_rule {
        return sliced(service, peer, JSON, |service| SourceText::begin(service, &address)).await;
    }
    read(&service, &peer, |service| service.source(&address)).await
}

/// A source with its drops by rule: a pass under way.
pub(in crate::daemon) struct SourceText {
    address: String,
    /// None once it was told.
    by_rule: Option<ByRule>,
}

impl SourceText {
    fn begin(service: &Service, address: &str) -> Result<Self, Refusal> {
        service.datapath()?;
        let by_rule = Some(ByRule::of_address(source_text::parse_one(address)?));
        Ok(Self { address: address.to_owned(), by_rule })
    }
}

impl Sliced<Service> for SourceText {
    fn step(&mut self, service: &Service) -> Result<Step, Refusal> {
        let datapath = service.datapath()?;
        let Some(by_rule) = &mut self.by_rule else { return Ok(Step::Done) };
        if !by_rule.step(datapath)? {
            return Ok(Step::Again);
        }
        let by_rule = self.by_rule.take();
        let by_rule = by_rule
            .map(|read| of_rules(read.drops(datapath, &service.effective, Some(&service.events))));
        let view = SourceView { by_rule, ..service.source(&self.address)? };
        Ok(Step::Part(serde_json::to_vec(&view)?.into()))
    }
}

impl Service {
    /// One source.
    pub(in crate::daemon) fn source(&self, address: &str) -> Result<SourceView, Refusal> {
        let address = source_text::parse_one(address)?;
        let datapath = self.datapath()?;
        let reason = self.lists.reason_of(&Selector::address(address), datapath.now());
        let listed_reason = reason.map(str::to_owned);
        Ok(SourceView { listed_reason, ..whole(datapath, &self.effective, address)? })
    }
}

/// The drops of one source, without its name.
pub(in crate::daemon) fn of_rules(drops: Vec<OtherDrops>) -> Vec<RuleDrops> {
    drops.into_iter().map(|row| row.drops).collect()
}

/// All of a source that the maps hold.
pub(in crate::daemon) fn whole(
    datapath: &dyn Observed,
    effective: &EffectiveSet,
    address: IpAddr,
) -> Result<SourceView, ServiceError> {
    let listed = views::listed(datapath, &views::key(address))?;
    let view = SourceView { listed, ..view(datapath, effective, address)? };
    views::with_others(view, datapath, effective, address)
}

/// A source by itself, without what is asked before its rule.
pub(in crate::daemon) fn view(
    datapath: &dyn Observed,
    effective: &EffectiveSet,
    address: IpAddr,
) -> Result<SourceView, ServiceError> {
    let selector = Selector::address(address);
    let bucket = datapath.bucket(&views::key(address))?;
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
fn keyed_source(
    view: SourceView,
    datapath: &dyn Observed,
    address: IpAddr,
) -> Result<SourceView, ServiceError> {
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

/// Text for a source that falls under no rule on sources.
pub(crate) fn without_rule(view: &SourceView) -> &'static str {
    let denied = view.listed == Some(ListName::Deny);
    if denied || view.martian || view.banned_seconds.is_some() || view.other_rules_in_all > 0 {
        "none on sources"
    } else {
        "none: not limited"
    }
}

/// Text for the rule of a source.
pub(crate) fn rule_text(view: &SourceView) -> String {
    match (&view.rule, &view.rule_name) {
        (Some(rule), Some(name)) => format!("{} ({rule})", clean(name)),
        (Some(rule), None) => rule.clone(),
        (None, _) => without_rule(view).to_owned(),
    }
}

/// Text about rules on other keys that may drop packets of a source, and about the commands that
/// tell more.
pub(crate) fn other_rules(view: &SourceView) -> Option<String> {
    let all = view.other_rules_in_all;
    let named: Vec<_> = view.other_rules.iter().map(|rule| clean(rule)).collect();
    let more = all.saturating_sub(u64::try_from(named.len()).unwrap_or(0));
    let more = if more > 0 { format!(" and {} more", number(more)) } else { String::new() };
    (all > 0).then(|| format!("may drop packets of it, too: {}{more}", named.join("; ")))
}

/// The question that tells what such rules do.
pub(crate) fn question(view: &SourceView) -> String {
    let address = view.source.split_once('/').map_or(view.source.as_str(), |(address, _)| address);
    format!("limiter explain --from {} --to PORT/PROTOCOL", clean(address))
}

fn by_rule(text: &mut String, rules: &[RuleDrops]) {
    if rules.is_empty() {
        return;
    }
    let mut table = table(&["BY OTHER RULES", "REASON", ">KEYS", ">PASSED", ">DROPPED", ""]);
    let or_none = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), number);
    for rule in rules {
        table.add_row([
            rule.title(),
            rule.reason.clone(),
            or_none(rule.keys),
            or_none(rule.passed),
            number(rule.dropped),
            rule.said().to_owned(),
        ]);
    }
    text.push('\n');
    push(text, &table);
}

impl Render for SourceView {
    fn render(&self, text: &mut String) {
        let mut table = table(&["", ""]);
        let mut row = |name: &str, value: String| {
            table.add_row([name.to_owned(), value]);
        };
        row("source", self.source.clone());
        if let Some(list) = self.listed {
            let what = match list {
                ListName::Allow => "allow: every packet passes",
                ListName::Deny => "deny: every packet is dropped",
            };
            let why = self.listed_reason.as_deref().map(|why| format!(" ({})", clean(why)));
            row("list", format!("{what}{}", why.unwrap_or_default()));
        }
        if self.martian {
            row("martian", "no host can have this source: every packet is dropped".to_owned());
        }
        if let Some(seconds) = self.banned_seconds {
            row("ban", format!("every packet is dropped for {} s more", number(seconds)));
        }
        row("rule", rule_text(self));
        if let Some(limit) = &self.limit {
            let effective = match self.effective_per_second {
                Some(_) => format!(" (effective {})", rate(self.effective_per_second)),
                None => String::new(),
            };
            let shadow = if self.shadow { ", in shadow mode: only counted" } else { "" };
            row("limit", format!("{limit}{effective}{shadow}"));
        }
        for limit in self.limits.iter().skip(1) {
            row("and", format!("{} (effective {})", limit.text, rate(limit.effective_per_second)));
        }
        if let Some(action) = self.action.as_deref().filter(|action| *action != "drop") {
            row("over it", action.to_owned());
        }
        if let (Some(remaining), Some(burst)) = (self.remaining, self.burst) {
            let count = self.count.as_deref().unwrap_or("packets");
            row("remaining", format!("{} of {} {count}", number(remaining), number(burst)));
            row("full in", duration(self.full_in_ns));
        }
        if let (Some(here), Some(left)) = (self.here, self.remaining_here) {
            let count = self.count.as_deref().unwrap_or("packets");
            row("over nodes", format!("{} {count} {}", number(left), here.words()));
        }
        if self.tracked {
            row("passed", number(self.passed));
            row("dropped", number(self.dropped));
        } else {
            row("tracked", "no: it has no bucket for a rule on sources now".to_owned());
        }
        if let Some(rules) = other_rules(self) {
            row("others", rules);
            let ask = question(self);
            let by_rule = self.by_rule.is_some();
            let what = if by_rule {
                "what they would do with a packet"
            } else {
                "what they drop is not counted here"
            };
            row("", format!("{what}: `limiter events`, `{ask}`"));
        }
        push(text, &table);
        *text = text.trim_start().to_owned();
        by_rule(text, self.by_rule.as_deref().unwrap_or_default());
    }
}
