//! All that the program asks about a packet, in its order.

use std::net::Ipv6Addr;

use limiter_common::time::Ticks;
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::{Action, ActionKind, Count, Listed, RULE_NONE, field};

use super::named::Named;
use super::{InForce, nanos_up, plain};
use crate::daemon::api::explain::{ExplainLimit, ExplainStep};
use crate::datapath::model::rehearsal::{
    Held, Holder, Judged, Looked, LookedLimit, LookedSource, LookedTable, Seen,
};
use crate::rules::Selector;
use crate::rules::model::{Fact, Limits, Meter, RuleLimit, limit_text, over_text};

/// The step of rules by source alone.
pub(super) const BY_SOURCE: &str = "remote_address";

/// A step, and the number that its rule counts under.
pub(super) struct Step {
    pub(super) told: ExplainStep,
    pub(super) number: u32,
}

/// All of them.
pub(super) fn list(
    in_force: &InForce<'_>,
    source: &Selector,
    looked: &Looked,
    judged: &Judged,
    seen: &Seen<'_>,
) -> Vec<Step> {
    let mut steps: Vec<_> = gate(looked, judged, in_force.now)
        .into_iter()
        .map(|told| Step { told, number: RULE_NONE })
        .collect();
    // The first that says no is the last that is asked.
    let mut reached = steps.iter().all(|step| step.told.reached) && !is_settled(judged);
    // A source has one rule by source alone, whichever of two tables holds that.
    let mut found = false;
    for table in &looked.tables {
        let of_sources = table.table.is_of_sources();
        found |= of_sources && table.told.is_some();
        if !of_sources || table.told.is_some() {
            steps.push(keyed(in_force, source, table, reached));
        }
        reached &= !table.stops;
    }
    if let Some(rule) = &looked.rule {
        steps.push(of_source(in_force, source, rule, reached, seen));
    } else if !found {
        let told = plain(BY_SOURCE, reached, Reason::NoRule.name());
        steps.push(Step { told, number: RULE_NONE });
    }
    settle(&mut steps, judged);
    steps
}

/// What is charged to one budget at two places may be within it at each of them and over it at both. The verdict
/// is right, and it names the rule.
fn settle(steps: &mut [Step], judged: &Judged) {
    let outcome = judged.outcome;
    let drops = |step: &Step| step.told.reached && is_drop(&step.told.says);
    if outcome.reason.verdict() == Verdict::Pass || steps.iter().any(drops) {
        return;
    }
    let mine = |step: &&mut Step| step.told.reached && step.number == outcome.rule;
    if let Some(step) = steps.iter_mut().rfind(mine) {
        outcome.reason.name().clone_into(&mut step.told.says);
    }
}

/// Whether it is the name of a reason why a packet is dropped.
fn is_drop(says: &str) -> bool {
    let word = says.split(' ').next();
    let is = |reason: &Reason| Some(reason.name()) == word;
    Reason::ALL.iter().filter(|reason| reason.verdict() == Verdict::Drop).any(is)
}

/// Whether the packet leaves before any table is asked.
fn is_settled(judged: &Judged) -> bool {
    matches!(
        judged.outcome.reason,
        Reason::Brake
            | Reason::NotIp
            | Reason::NeighbourDiscovery
            | Reason::DeepVlan
            | Reason::Truncated
            | Reason::Malformed
            | Reason::Allowed
            | Reason::Denied
            | Reason::Banned
            | Reason::Martian
    )
}

/// What comes before the rules.
fn gate(looked: &Looked, judged: &Judged, now: Ticks) -> Vec<ExplainStep> {
    let ends = |time: Ticks| {
        let seconds = nanos_up(time.since(now)).div_ceil(1_000_000_000);
        format!("for {seconds} s")
    };
    let mut reached = true;
    let mut steps = Vec::with_capacity(4);
    let mut push = |step: &str, says: String, stops: bool| {
        steps.push(plain(step, reached, &says));
        reached &= !stops;
    };
    push("brake", if looked.brake { "brake" } else { "off" }.to_owned(), looked.brake);
    let listed = match looked.listed {
        None => "on no list".to_owned(),
        Some((listed, entry)) => {
            let says = match listed {
                Listed::Allow => Reason::Allowed.name(),
                Listed::Management => "allowed: a management prefix",
                Listed::Deny => Reason::Denied.name(),
            };
            let end = entry.expires().map_or_else(|| "for ever".to_owned(), ends);
            if listed == Listed::Management { says.to_owned() } else { format!("{says} {end}") }
        }
    };
    push("lists", listed, looked.listed.is_some());
    let ban = looked.ban.filter(|ban| Ticks::new(ban.until) > now);
    let says = ban.map_or_else(
        || "not banned".to_owned(),
        |ban| format!("{} {}", Reason::Banned.name(), ends(Ticks::new(ban.until))),
    );
    push("bans", says, ban.is_some());
    if looked.header.drops_martians() {
        let martian = judged.outcome.reason == Reason::Martian;
        let says = if martian { Reason::Martian.name() } else { "a host can have this source" };
        push("martians", says.to_owned(), martian);
    }
    steps
}

fn keyed(in_force: &InForce<'_>, source: &Selector, looked: &LookedTable, reached: bool) -> Step {
    let of_sources = looked.table.is_of_sources();
    let name =
        if of_sources { BY_SOURCE.to_owned() } else { format!("table {}", looked.index + 1) };
    let Some(named) = in_force.table_rule(source, looked) else {
        return Step { told: plain(&name, reached, Reason::NoRule.name()), number: RULE_NONE };
    };
    let reason = looked.told.map_or(Reason::NoRule, |(reason, _)| reason);
    let number = looked.told.map_or(RULE_NONE, |(_, number)| number);
    let Named { terms, step } = named;
    let mut told = ExplainStep {
        step: name,
        reached,
        says: reason.name().to_owned(),
        key: Some(if of_sources { source.to_string() } else { key_text(looked) }),
        passed: looked.counted.map(|[passed, _]| passed),
        dropped: looked.counted.map(|[_, dropped]| dropped),
        ..step
    };
    if let Some(held) = &looked.held {
        let budget = in_force.budget(&held.record);
        let limits = budget.map(|budget| &budget.limits).or_else(|| terms.limits());
        if let Some(limits) = limits {
            // The program reads what is charged: that of the budget.
            told.action = Some(over_text(&limits.over));
            told.shadow = limits.shadow;
            let name = budget.map(|budget| budget.name.as_str());
            told.limits = lines(held, limits, name);
        }
        told.budget = budget.map(|budget| budget.name.clone());
        if held.holder == Holder::Strangers {
            told.key = Some("what keys without a bucket share".to_owned());
        }
        if held.holder != Holder::Key && told.passed.is_none() {
            told.passed = Some(held.counted[0]);
            told.dropped = Some(held.counted[1]);
        }
    }
    told.limits.extend(class_lines(in_force, looked.class.as_ref()));
    Step { told, number }
}

fn of_source(
    in_force: &InForce<'_>,
    source: &Selector,
    looked: &LookedSource,
    reached: bool,
    seen: &Seen<'_>,
) -> Step {
    let number = looked.limit.rule;
    let named = in_force.source_rule(source, looked.slot);
    let reason = match looked.meter {
        None if looked.limit.rule == RULE_NONE => Reason::NoRule,
        None => Reason::Unlimited,
        Some(meter) if meter.conforms_in == Some(Ticks::ZERO) => Reason::Conforming,
        Some(_) => over(looked, seen),
    };
    let mut told = ExplainStep {
        step: BY_SOURCE.to_owned(),
        reached,
        says: reason.name().to_owned(),
        key: Some(source.to_string()),
        passed: looked.counted.map(|[passed, _]| passed),
        dropped: looked.counted.map(|[_, dropped]| dropped),
        ..named.as_ref().map(|named| named.step.clone()).unwrap_or_default()
    };
    if let (Some(named), Some(meter)) = (&named, looked.meter)
        && let Some(limits) = named.terms.limits()
        && let Some(limit) = limits.limits.first()
    {
        told.action = Some(over_text(&limits.over));
        told.limits.push(line(limit_text(limit), size(limit), looked.limit.counts(), meter));
        told.limits.extend(class_lines(in_force, looked.class.as_ref()));
    }
    Step { told, number }
}

/// What is made of a packet that is over the limit of the source table.
fn over(looked: &LookedSource, seen: &Seen<'_>) -> Reason {
    let reason = looked.limit.over();
    if reason != Reason::OverLimit || looked.limit.action == 0 {
        return reason;
    }
    match seen.action(u32::from(looked.limit.action)).map(Action::kind) {
        Some(ActionKind::Mark | ActionKind::Pass) => Reason::Marked,
        Some(ActionKind::Interface | ActionKind::Cpu) => Reason::Redirected,
        Some(ActionKind::Class) if looked.class.as_ref().is_some_and(has_room) => Reason::Class,
        _ => reason,
    }
}

fn has_room(held: &Held) -> bool {
    held.limits.iter().all(|limit| limit.conforms_in == Some(Ticks::ZERO))
}

/// A line for each limit that is held, with the words of the rule.
fn lines(held: &Held, limits: &Limits, budget: Option<&str>) -> Vec<ExplainLimit> {
    let texts = limits.limits.iter().flat_map(|limit| {
        let upper = limit.upper.as_ref().map(|upper| {
            let text = format!("{} of {}", upper.name(), limit_text(limit));
            (text, Some(upper.rate().burst))
        });
        std::iter::once((limit_text(limit), size(limit))).chain(upper)
    });
    let specs = held.record.limits.iter().zip(&held.limits);
    texts
        .zip(specs)
        .map(|((text, size), (spec, meter))| {
            let text = match budget {
                Some(name) => format!("budget {name}: {text}"),
                None => text,
            };
            line(text, size, spec.counts(), *meter)
        })
        .collect()
}

/// Those of the budget of a class.
fn class_lines(in_force: &InForce<'_>, class: Option<&Held>) -> Vec<ExplainLimit> {
    let Some((held, budget)) = class.and_then(|held| Some((held, in_force.budget(&held.record)?)))
    else {
        return Vec::new();
    };
    lines(held, &budget.limits, Some(&budget.name))
}

fn line(limit: String, size: Option<u64>, count: Count, meter: LookedLimit) -> ExplainLimit {
    let LookedLimit { remaining, conforms_in, full_in } = meter;
    ExplainLimit {
        limit,
        count: crate::daemon::views::count_name(count).to_owned(),
        size,
        // The compiled tolerance may round to a unit more than the burst; people know the burst.
        remaining: size.map_or(remaining, |size| remaining.min(size)),
        conforms: conforms_in == Some(Ticks::ZERO),
        conforms_in_ns: conforms_in.map(nanos_up),
        full_in_ns: full_in.map(nanos_up),
    }
}

/// What may come at once.
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

/// The values of the keys of a table.
fn key_text(looked: &LookedTable) -> String {
    let (fields, key) = (looked.table.fields, &looked.key);
    let address = |words: [u64; 2]| {
        let address = Ipv6Addr::from(bytemuck::cast::<_, [u8; 16]>(words));
        match address.to_ipv4_mapped() {
            Some(v4) if key.version == 4 => v4.to_string(),
            _ => address.to_string(),
        }
    };
    let facts = Fact::ALL.map(|fact| {
        let value = u16::try_from(key.value(fact.field())).unwrap_or(u16::MAX);
        (fact.field(), fact.told(value))
    });
    let others = [
        (field::INTERFACE, format!("interface {}", key.interface)),
        (field::DESTINATION, format!("to {}", address(key.destination))),
        (field::INNER, format!("inside {}", address(key.source))),
        (field::SOURCE, format!("from {}", address(key.source))),
    ];
    let values = facts.into_iter().chain(others).filter(|(bit, _)| fields & bit != 0);
    let values: Vec<_> = values.map(|(_, value)| value).collect();
    if values.is_empty() { "every packet".to_owned() } else { values.join(" ") }
}
