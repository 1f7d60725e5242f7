//! All checks of the program for a packet, in their order.

use std::net::Ipv6Addr;
use std::time::Duration;

use limiter_api::explain::{ExplainLimit, ExplainStep, Here};
use limiter_api::render::seconds;
use limiter_api::sources::source::beside_text;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::{Count, Listed, RULE_NONE, field};
use limiter_model::{
    Held, Holder, Judged, Looked, LookedLimit, LookedSource, LookedTable, Standing, Trail,
};
use limiter_rules::compile::values_of_class;
use limiter_rules::model::{
    Direction, Fact, Limits, Meter, Over, RuleLimit, limit_text, over_text,
};
use limiter_rules::{Budget, Selector};
use limiter_text::plain::clean;

use super::in_force::InForce;
use crate::rule_sets::effective::Effective;

pub(crate) const BANS: &str = "bans";

/// Name of the step for rules by source alone.
pub(super) const BY_SOURCE: &str = "remote_address";

pub(super) struct Step {
    pub(super) at: limiter_model::Step,
    pub(super) reported: ExplainStep,
    /// Result of the step for the packet; `None` for steps before the rules.
    pub(super) reason: Option<Reason>,
    /// True if packets over its limits count towards a ban.
    pub(super) bans: bool,
    /// Longest wait of packets over its limits, if they wait.
    pub(super) longest_wait: Option<Duration>,
}

impl Step {
    /// A step without a rule.
    fn plain(name: &str, at: limiter_model::Step, trail: &Trail, says: &str) -> Self {
        let (step, says) = (name.to_owned(), says.to_owned());
        let reported = ExplainStep { step, reached: trail.reaches(at), says, ..Default::default() };
        Self { at, reported, reason: None, bans: false, longest_wait: None }
    }

    /// A step of the rules without a rule for the packet.
    fn no_rule(name: &str, at: limiter_model::Step, trail: &Trail) -> Self {
        let reason = Reason::NoRule;
        Self { reason: Some(reason), ..Self::plain(name, at, trail, reason.name()) }
    }
}

pub(super) fn list(
    in_force: &InForce<'_>,
    source: &Selector,
    looked: &Looked,
    judged: &Judged,
) -> Vec<Step> {
    let trail = &judged.trail;
    let mut steps = before_rules(looked, trail, in_force, source);
    let book = in_force.book(source, looked);
    // A source has one rule by source alone, in whichever of two tables.
    let mut found = false;
    for table in &looked.tables {
        let of_sources = table.table.is_of_sources();
        found |= of_sources && table.reported.is_some();
        if !of_sources || table.reported.is_some() {
            let rule = book.of_key(table.table.id, &table.key, table.slot);
            steps.push(keyed(in_force, source, (table, rule.map(|written| written.rule)), trail));
        }
    }
    if let Some(looked) = &looked.rule {
        let rule = book.of_source(looked.slot).map(|written| written.rule);
        steps.push(of_source(in_force, source, (looked, rule), trail));
    } else if !found {
        steps.push(Step::no_rule(BY_SOURCE, limiter_model::Step::Sources, trail));
    }
    // A packet charged to one budget at two places may be within the budget at each place and over
    // it at both together.
    let stopped = |step: &&mut Step| Some(step.at) == trail.stopped();
    if let Some(step) = steps.iter_mut().find(stopped)
        && step.reason.is_some_and(|reason| reason.verdict() == Verdict::Pass)
    {
        judged.outcome.reason.name().clone_into(&mut step.reported.says);
    }
    steps
}

fn before_rules(
    looked: &Looked,
    trail: &Trail,
    &InForce { lists, now, .. }: &InForce<'_>,
    source: &Selector,
) -> Vec<Step> {
    let [reason, by] = lists.words_of(source, now);
    let ends = |time: Ticks| {
        let left = time.since(now).as_nanos_rounded_up().div_ceil(1_000_000_000);
        format!("for {}", seconds(left))
    };
    let step = |name: &str, at: limiter_model::Step, says: &str| Step::plain(name, at, trail, says);
    let listed = match looked.listed {
        None => "on no list".to_owned(),
        Some((listed, entry)) => {
            let says = match listed {
                Listed::Allow => Reason::Allowed.name(),
                Listed::Management => "allowed: a management prefix",
                Listed::Deny => Reason::Denied.name(),
            };
            let end = match entry.expires() {
                Some(end) => ends(end),
                None if lists.lacks(source, now) => "until a reboot (not saved)".to_owned(),
                None => "for ever".to_owned(),
            };
            let by = by.map(|by| format!(" by {}", clean(by))).unwrap_or_default();
            let why = reason.map(|reason| format!(" ({})", clean(reason))).unwrap_or_default();
            let beside = lists.beside(source, now);
            let beside = beside.iter().map(|entry| format!("; not {}", beside_text(entry)));
            match listed {
                Listed::Management => says.to_owned(),
                Listed::Allow | Listed::Deny => {
                    format!("{says} {end}{by}{why}{}", beside.collect::<String>())
                }
            }
        }
    };
    let ban = looked.ban.map(|ban| Ticks::new(ban.until)).filter(|until| *until > now);
    let banned = ban.map_or_else(
        || "not banned".to_owned(),
        |until| format!("{} {}", Reason::Banned.name(), ends(until)),
    );
    let mut steps = vec![
        step("bypass", limiter_model::Step::Bypass, if looked.bypass { "bypass" } else { "off" }),
        step("lists", limiter_model::Step::Lists, &listed),
        step(BANS, limiter_model::Step::Bans, &banned),
    ];
    if looked.header.drops_martians() {
        // Reported even for a packet that does not get there.
        let martian = looked.source.is_some_and(Source::is_martian);
        let says = if martian { Reason::Martian.name() } else { "a host can have this source" };
        steps.push(step("martians", limiter_model::Step::Martians, says));
    }
    steps
}

fn keyed(
    in_force: &InForce<'_>,
    source: &Selector,
    (looked, rule): (&LookedTable, Option<&Effective>),
    trail: &Trail,
) -> Step {
    let at = limiter_model::Step::Table(looked.index);
    let of_sources = looked.table.is_of_sources();
    let name =
        if of_sources { BY_SOURCE.to_owned() } else { format!("table {}", looked.index + 1) };
    let Some(effective) = rule else {
        return Step::no_rule(&name, at, trail);
    };
    let reason = looked.reported.map_or(Reason::NoRule, |(reason, _)| reason);
    let mut reported = ExplainStep {
        step: name,
        reached: trail.reaches(at),
        says: reason.name().to_owned(),
        key: Some(if of_sources { source.to_string() } else { key_text(looked) }),
        passed: looked.counted.map(|[passed, _]| passed),
        dropped: looked.counted.map(|[_, dropped]| dropped),
        ..in_force.named(effective)
    };
    let (mut bans, mut longest_wait) = (false, None);
    if let Some(held) = &looked.held {
        let budget = in_force.budget(&held.record);
        let limits = budget.map(|budget| &budget.limits);
        let limits = limits.or_else(|| effective.rule.terms.limits());
        if let Some(limits) = limits {
            // The program uses the action of the budget that is charged.
            reported.action = Some(over_text(&limits.over));
            bans = is_ban(&limits.over);
            longest_wait = longest(&limits.over);
            reported.shadow = limits.shadow;
            let name = budget.map(|budget| budget.name.as_str());
            reported.limits = lines(held, limits, name);
        }
        reported.budget = budget.map(|budget| budget.name.clone());
        // A blocked key shares nothing.
        let shares = !held.record.is_block();
        if held.holder == Holder::Strangers && shares {
            reported.key = Some("what keys without a bucket share".to_owned());
        }
        if held.holder != Holder::Key && reported.passed.is_none() && shares {
            reported.passed = Some(held.counted[0]);
            reported.dropped = Some(held.counted[1]);
        }
    }
    if let Some((held, budget)) = class(in_force, looked.class.as_ref()) {
        reported.limits.extend(lines(held, &budget.limits, Some(&budget.name)));
        longest_wait = longest(&budget.limits.over);
    }
    Step { at, reported, reason: Some(reason), bans, longest_wait }
}

fn of_source(
    in_force: &InForce<'_>,
    source: &Selector,
    (looked, rule): (&LookedSource, Option<&Effective>),
    trail: &Trail,
) -> Step {
    let at = limiter_model::Step::Sources;
    let none = looked.meter.is_none() && looked.limit.rule == RULE_NONE;
    let reason = if none { Reason::NoRule } else { looked.reason };
    let mut reported = ExplainStep {
        step: BY_SOURCE.to_owned(),
        reached: trail.reaches(at),
        says: reason.name().to_owned(),
        key: Some(source.to_string()),
        passed: looked.counted.map(|[passed, _]| passed),
        dropped: looked.counted.map(|[_, dropped]| dropped),
        ..rule.map(|effective| in_force.named(effective)).unwrap_or_default()
    };
    let (mut bans, mut longest_wait) = (false, None);
    if let (Some(effective), Some(meter)) = (rule, looked.meter)
        && let Some(limits) = effective.rule.terms.limits()
        && let Some(limit) = limits.limits.first()
    {
        reported.action = Some(over_text(&limits.over));
        bans = is_ban(&limits.over);
        reported.limits.push(line(limit_text(&limit), size(&limit), looked.limit.counts(), meter));
        if let Some((held, budget)) = class(in_force, looked.class.as_ref()) {
            reported.limits.extend(lines(held, &budget.limits, Some(&budget.name)));
            longest_wait = longest(&budget.limits.over);
        }
    }
    Step { at, reported, reason: Some(reason), bans, longest_wait }
}

/// Longest wait of packets over limits, if they wait.
const fn longest(over: &Over) -> Option<Duration> {
    match over {
        Over::Delay(delay) => Some(delay.longest),
        _ => None,
    }
}

const fn is_ban(over: &Over) -> bool {
    matches!(over, Over::Ban(_))
}

/// A line for each held limit, in the words of the rule.
pub(crate) fn lines(held: &Held, limits: &Limits, budget: Option<&str>) -> Vec<ExplainLimit> {
    let texts = limits.limits.iter().flat_map(|limit| {
        let upper = limit.upper.as_ref().map(|upper| {
            let text = format!("{} of {}", upper.name(), limit_text(&limit));
            (text, Some(upper.rate().burst))
        });
        std::iter::once((limit_text(&limit), size(&limit))).chain(upper)
    });
    let specs = held.record.limits.iter().zip(&held.limits);
    texts
        .zip(specs)
        .map(|((text, size), (spec, meter))| {
            let text = match budget {
                Some(name) => format!("budget {name}: {text}"),
                None => text,
            };
            // The remainder is this node's part of the amount that all nodes have.
            let shared = meter.standing != Standing::Node;
            let (text, size) = if shared { (text + " over all nodes", None) } else { (text, size) };
            line(text, size, spec.counts(), *meter)
        })
        .collect()
}

/// The budget of a class, with its bucket.
fn class<'a>(in_force: &'a InForce<'_>, class: Option<&'a Held>) -> Option<(&'a Held, &'a Budget)> {
    class.and_then(|held| Some((held, in_force.budget(&held.record)?)))
}

/// A line for a limit in the words of its rule.
pub(crate) fn line(
    limit: String,
    size: Option<u64>,
    count: Count,
    meter: LookedLimit,
) -> ExplainLimit {
    let LookedLimit { standing, remaining, conforms_in, waits, full_in } = meter;
    ExplainLimit {
        limit,
        count: count.name().to_owned(),
        size,
        // The compiled tolerance may round to a unit more than the burst; people know the burst.
        remaining: size.map_or(remaining, |size| remaining.min(size)),
        here: here(standing),
        conforms: conforms_in == Some(Ticks::ZERO),
        conforms_in_ns: conforms_in.map(Ticks::as_nanos_rounded_up),
        waits_ns: waits.map(Ticks::as_nanos_rounded_up),
        full_in_ns: full_in.map(Ticks::as_nanos_rounded_up),
    }
}

/// How this node decides for a shared limit; `None` for a limit of this node alone.
const fn here(standing: Standing) -> Option<Here> {
    match standing {
        Standing::Node => None,
        Standing::Lease => Some(Here::Lease),
        Standing::Share => Some(Here::Share),
        Standing::Nothing => Some(Here::Nothing),
    }
}

/// Units that may come at once.
fn size(limit: &RuleLimit) -> Option<u64> {
    match &limit.meter {
        Meter::TokenBucket(rate) => Some(rate.burst),
        Meter::LeakyBucket { .. } => None,
        Meter::FixedWindow(quota)
        | Meter::SlidingLog(quota)
        | Meter::SlidingCounter(quota)
        | Meter::SlidingSlots { quota, .. } => Some(quota.requests_per_unit),
    }
}

/// Formats the values of a table's keys.
fn key_text(looked: &LookedTable) -> String {
    let (fields, key) = (looked.table.fields, &looked.key);
    // A prefix is more than its first address.
    let prefix = |words: [u64; 2], [v4, v6]: [[u64; 2]; 2]| {
        let address = Ipv6Addr::from(bytemuck::cast::<_, [u8; 16]>(words));
        let bits = |mask: [u64; 2]| mask.iter().map(|word| word.count_ones()).sum::<u32>();
        match address.to_ipv4_mapped() {
            Some(address) if key.version == 4 => match bits(v4).saturating_sub(96) {
                32 => address.to_string(),
                length => format!("{address}/{length}"),
            },
            _ => match bits(v6) {
                128 => address.to_string(),
                length => format!("{address}/{length}"),
            },
        }
    };
    let (sources, destinations) = (looked.table.source_masks, looked.table.destination_masks);
    let direction = Direction::of_fields(fields);
    let [other, own] = if direction == Direction::Out { ["to", "from"] } else { ["from", "to"] };
    let facts = Fact::ALL.map(|fact| {
        let value = u16::try_from(key.value(fact.field())).unwrap_or(u16::MAX);
        let values = values_of_class(&looked.table, fact, value);
        (fact.field(), fact.in_header(direction).reported(values))
    });
    let others = [
        (field::INTERFACE, format!("interface {}", key.interface)),
        (field::DESTINATION, format!("{own} {}", prefix(key.destination, destinations))),
        (field::INNER, format!("inside {}", prefix(key.source, sources))),
        (field::SOURCE, format!("{other} {}", prefix(key.source, sources))),
    ];
    let values = facts.into_iter().chain(others).filter(|(bit, _)| fields & bit != 0);
    let values: Vec<_> = values.map(|(_, value)| value).collect();
    if values.is_empty() { "every packet".to_owned() } else { values.join(" ") }
}
