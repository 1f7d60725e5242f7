//! Limits and actions in one line, for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use limiter_common::wire::{Count, Evidence, Full, OnLoss};
use limiter_sharing::fnv::Fnv;
use limiter_text::spoken::{exact, exact_bytes};

use super::action::{Limits, Mark, Over, Terms};
use super::limit::{Meter, RateLimit, RuleLimit};
use super::sharing::Sharing;
use super::{RuleSet, Subject};
use crate::compile::{display_rate, kept_rate};

/// The form of lengths of time, of rates and of bursts in a text.
#[derive(Clone, Copy)]
struct Form {
    time: fn(Duration) -> String,
    rate: fn(&RateLimit) -> String,
    burst: fn(&RateLimit) -> String,
}

/// For people.
const SHOWN: Form = Form {
    time: exact,
    rate: display_rate,
    burst: |rate| match rate.count {
        Count::Bytes => exact_bytes(rate.burst.into()),
        _ => rate.burst.to_string(),
    },
};

/// In texts that are compared with those of other versions.
const KEPT: Form = Form {
    time: |time| humantime::format_duration(time).to_string(),
    rate: kept_rate,
    burst: |rate| rate.burst.to_string(),
};

/// [`terms_text`] as all versions write it, to be kept on disk and compared.
pub fn terms_kept(terms: &Terms) -> String {
    terms_in(terms, KEPT)
}

/// A rate, and the algorithm if it is not the token bucket: `10 syns/min`,
/// `sliding_slots 100/s slots 4 strict`.
pub fn meter_text(meter: &Meter) -> String {
    meter_in(meter, SHOWN)
}

fn meter_in(meter: &Meter, form: Form) -> String {
    let rate = (form.rate)(&meter.quota().with_burst(0));
    let algorithm = meter.algorithm();
    match meter {
        Meter::TokenBucket(_) => rate,
        Meter::LeakyBucket { backlog, .. } => {
            format!("{algorithm} {rate} backlog {}", (form.time)(*backlog))
        }
        Meter::SlidingSlots { slots, strict, .. } => {
            format!("{algorithm} {rate} slots {slots}{}", if *strict { " strict" } else { "" })
        }
        Meter::FixedWindow(_) | Meter::SlidingLog(_) | Meter::SlidingCounter(_) => {
            format!("{algorithm} {rate}")
        }
    }
}

/// All of a limit: `10 syns/min burst 5`.
pub fn limit_text(limit: &RuleLimit) -> String {
    limit_in(limit, SHOWN)
}

fn limit_in(limit: &RuleLimit, form: Form) -> String {
    let mut text = meter_in(&limit.meter, form);
    // Writing to a `String` cannot fail.
    if let Meter::TokenBucket(rate) = &limit.meter {
        let _: std::fmt::Result = write!(text, " burst {}", (form.burst)(rate));
    }
    if let Some(upper) = &limit.upper {
        let rate = upper.rate();
        let (name, shown, burst) = (upper.name(), (form.rate)(rate), (form.burst)(rate));
        let _: std::fmt::Result = write!(text, ", {name} {shown} burst {burst}");
        let mark = limit.mark.map_or_else(|| "counted only".to_owned(), mark_text);
        let _: std::fmt::Result = write!(text, ", between them {mark}");
    }
    text
}

fn mark_text(mark: Mark) -> String {
    match mark {
        Mark::Dscp(dscp) => format!("mark dscp {dscp}"),
        Mark::Ecn => "mark ecn".to_owned(),
    }
}

/// Action over a limit as text: `drop`, `class slow`, `ban 1 min to 1 d`.
pub fn over_text(over: &Over) -> String {
    over_in(over, SHOWN)
}

fn over_in(over: &Over, form: Form) -> String {
    match over {
        Over::Drop | Over::Reject => over.name().to_owned(),
        Over::Mark(mark) => mark_text(*mark),
        Over::Class(name) | Over::Interface(name) => format!("{} {name}", over.name()),
        Over::Cpu(cpu) => format!("cpu {cpu}"),
        Over::Ban(ban) => format!("ban {} to {}", (form.time)(ban.first), (form.time)(ban.longest)),
        Over::Delay(delay) => {
            let ecn = if delay.ecn { ", mark ecn from half of it" } else { "" };
            format!("delay up to {}{ecn}", (form.time)(delay.longest))
        }
    }
}

/// All of what a rule does, in one line. What does something else has another text.
pub fn terms_text(terms: &Terms) -> String {
    terms_in(terms, SHOWN)
}

fn terms_in(terms: &Terms, form: Form) -> String {
    match terms {
        Terms::Unlimited => "unlimited".to_owned(),
        Terms::Budget(name) => format!("budget {name:?}"),
        Terms::Limits(limits) => limits_in(limits, form),
    }
}

/// Limits as text, with all that holds for them together.
pub fn limits_text(limits: &Limits) -> String {
    limits_in(limits, SHOWN)
}

fn limits_in(limits: &Limits, form: Form) -> String {
    let Limits { limits, over, shadow, full, on_loss, sharing } = limits;
    let mut parts: Vec<String> = limits.iter().map(|limit| limit_in(&limit, form)).collect();
    match over {
        Over::Drop if limits.is_empty() => parts.push(over_in(over, form)),
        Over::Drop => {}
        Over::Class(name) | Over::Interface(name) => {
            parts.push(format!("{} {name:?}", over.name()));
        }
        Over::Ban(ban) => {
            let memory = (form.time)(ban.memory);
            let evidence = match ban.evidence {
                Evidence::None => "none",
                Evidence::Established => "established",
            };
            let strikes = ban.strikes;
            let text = over_in(over, form);
            parts.push(format!("{text}, memory {memory}, strikes {strikes}, evidence {evidence}"));
        }
        Over::Reject | Over::Mark(_) | Over::Cpu(_) | Over::Delay(_) => {
            parts.push(over_in(over, form));
        }
    }
    if *full != Full::default() {
        parts.push(format!("on_full {}", full.name()));
    }
    if *on_loss != OnLoss::default() {
        parts.push(format!("on_daemon_loss {}", on_loss.name()));
    }
    if *shadow {
        parts.push("shadow".to_owned());
    }
    parts.extend(sharing.as_deref().map(|sharing| sharing_in(sharing, form)));
    parts.join("; ")
}

/// How nodes share limits, as text: `over all nodes, sync 200 ms, share 25%, ...`.
pub fn sharing_text(sharing: &Sharing) -> String {
    sharing_in(sharing, SHOWN)
}

fn sharing_in(sharing: &Sharing, form: Form) -> String {
    let Sharing { sync, share, share_of_burst, lease_cap, on_partition, strict } = sharing;
    let (sync, on_partition) = ((form.time)(*sync), on_partition.name());
    let strict = if *strict { ", strict" } else { "" };
    // Versions that do not know it have the default, and must have the digest.
    let is_default = *lease_cap == Sharing::default().lease_cap;
    let cap = if is_default { String::new() } else { format!(", lease_cap {lease_cap}") };
    format!(
        "over all nodes, sync {sync}, share {share}, share_of_burst {share_of_burst}, \
         on_partition {on_partition}{cap}{strict}"
    )
}

impl RuleSet {
    /// A line for everything that the set has: rules with their names, budgets, `replies`, `bans`,
    /// entries of the lists. Two sets with the same [`RuleSet::lines_kept`] are the same, but for
    /// the order of their rules.
    pub fn lines(&self) -> BTreeMap<Subject, String> {
        self.lines_in(SHOWN)
    }

    /// [`RuleSet::lines`] as all versions write them: to compare two sets.
    pub fn lines_kept(&self) -> BTreeMap<Subject, String> {
        self.lines_in(KEPT)
    }

    fn lines_in(&self, form: Form) -> BTreeMap<Subject, String> {
        let named = |text: String, name: Option<&Box<str>>, label: Option<&Box<str>>| {
            let mut text = text;
            for (what, name) in [("name", name), ("generic_key", label)] {
                if let Some(name) = name {
                    // Writing to a `String` cannot fail.
                    let _: std::fmt::Result = write!(text, "; {what} {name:?}");
                }
            }
            text
        };
        let mut lines = BTreeMap::new();
        for rule in &self.rules {
            let text = named(terms_in(&rule.terms, form), rule.name.as_ref(), rule.label.as_ref());
            lines.insert(Subject::Rule(rule.path.clone()), text);
        }
        for budget in &self.budgets {
            let subject = Subject::Budget(budget.name.clone());
            lines.insert(subject, limits_in(&budget.limits, form));
        }
        for (subject, rate) in [(Subject::Replies, self.replies), (Subject::Bans, self.bans)] {
            if let Some(rate) = rate {
                let text = limit_in(&RuleLimit::from(rate), form);
                lines.insert(subject, text);
            }
        }
        if let Some(martians) = self.martians {
            lines.insert(Subject::Martians, martians.name().to_owned());
        }
        let listed = self.lists.iter();
        lines.extend(listed.map(|(at, entry)| (Subject::Listed(*at), entry.to_string())));
        lines
    }

    /// A digest of [`RuleSet::lines_kept`], the same in all versions: sets with different ones
    /// differ, and those that are the same but for the order of their rules have the same one, in
    /// whatever files they stand. Nodes compare theirs. A burst that a file leaves out is the one
    /// read for the interfaces.
    pub fn digest(&self) -> u64 {
        let mut digest = Fnv::default();
        for (subject, line) in self.lines_kept() {
            digest.add(subject.to_string().as_bytes());
            digest.add(line.as_bytes());
        }
        digest.finish()
    }
}
