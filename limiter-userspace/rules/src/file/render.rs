//! Rules as a rule file again: JSON, which is YAML.

use std::sync::Arc;
use std::time::Duration;

use limiter_common::wire::{Count, Evidence, Full, OnLoss};
use limiter_sharing::OnPartition;
use serde::Serialize;

use super::one_or_many::{OneOrMany, WordOr};
use super::placed::{Item, Placed, Scalar};
use super::shape::{self, Descriptor, File, Rules};
use crate::model::{
    Ban, Budget, LimitList, Limits, Listing, Mark, Meter, Over, Part, Path, Period, Quota,
    RateLimit, Rule, RuleLimit, RuleSet, SOURCE_MASKS, Share, Sharing, Terms, Upper, until_text,
};
use crate::rate_text::default_burst;

/// Writes a rule set so that [`super::RuleFile::parse`] reads the same one. A burst that is the
/// default for `max_frame` is left out, so that it follows the interfaces.
pub fn render(domain: &str, set: &RuleSet, max_frame: u64) -> Result<String, serde_json::Error> {
    write(Some(domain), set, Writer { max_frame: Some(max_frame) })
}

/// A rule file that is written rule by rule, with every burst, so that it means the same beside any
/// interface.
#[derive(Debug, Default)]
pub struct ExactFile {
    text: String,
    some: bool,
}

/// How a file without rules ends.
const NO_RULES: &str = "[]\n}\n";

impl ExactFile {
    /// Writes all but the rules.
    pub fn begin(domain: Option<&str>, set: &RuleSet) -> Result<Self, serde_json::Error> {
        let mut text = write(domain, set, EXACT)?;
        text.truncate(text.len() - NO_RULES.len());
        Ok(Self { text, some: false })
    }

    /// A rule.
    pub fn rule(&mut self, rule: &Rule) -> Result<(), serde_json::Error> {
        self.descriptor(&EXACT.rule(rule))
    }

    fn descriptor(&mut self, descriptor: &Descriptor) -> Result<(), serde_json::Error> {
        self.text.push_str(if self.some { "," } else { "[" });
        self.some = true;
        // Strings have no line breaks of their own in JSON.
        for line in serde_json::to_string_pretty(descriptor)?.lines() {
            self.text.push_str("\n    ");
            self.text.push_str(line);
        }
        Ok(())
    }

    /// All of it.
    pub fn end(mut self) -> String {
        self.text.push_str(if self.some { "\n  ]\n}\n" } else { NO_RULES });
        self.text
    }
}

/// A rule file in the form that people write, in parts.
#[derive(Debug, Default)]
pub struct Blocks {
    /// All before `descriptors`.
    pub head: String,
    /// Rules in their order: items of the list `descriptors`, indented.
    pub rules: Vec<String>,
}

/// Writes a rule set in parts, for somebody who puts words between them. It means the same beside
/// any interface.
///
/// # Errors
///
/// When it cannot be written as YAML.
pub fn blocks(set: &RuleSet) -> Result<Blocks, serde_saphyr::SerializeError> {
    let head = File {
        replies: set.replies.as_ref().map(|rate| rate_of(rate).into()),
        bans: set.bans.as_ref().map(|rate| rate_of(rate).into()),
        martians: set.martians.map(|martians| text(martians.name())),
        allow: listings(set, true),
        deny: listings(set, false),
        budgets: Some(set.budgets.iter().map(|budget| EXACT.budget(budget).into()).collect())
            .filter(|budgets: &Vec<_>| !budgets.is_empty()),
        ..File::default()
    };
    let says = head.replies.is_some() || head.bans.is_some() || head.martians.is_some();
    let lists = head.allow.is_some() || head.deny.is_some();
    let head =
        if says || lists || head.budgets.is_some() { yaml(&head, "")? } else { String::new() };
    let item = |rule: &Arc<Rule>| yaml(&[EXACT.rule(rule)], "  ");
    Ok(Blocks { head, rules: set.rules.iter().map(item).collect::<Result<_, _>>()? })
}

/// YAML with each line indented.
fn yaml(value: &impl Serialize, indent: &str) -> Result<String, serde_saphyr::SerializeError> {
    let text = serde_saphyr::to_string(value)?;
    Ok(text.lines().flat_map(|line| [indent, line, "\n"]).collect())
}

const EXACT: Writer = Writer { max_frame: None };

fn write(domain: Option<&str>, set: &RuleSet, writer: Writer) -> Result<String, serde_json::Error> {
    let rules = set.rules.iter().map(|rule| Item(writer.rule(rule).into())).collect();
    let budgets = set.budgets.iter().map(|budget| writer.budget(budget).into()).collect();
    let file = File {
        domain: domain.map(text),
        replies: set.replies.as_ref().map(|rate| rate_of(rate).into()),
        bans: set.bans.as_ref().map(|rate| rate_of(rate).into()),
        martians: set.martians.map(|martians| text(martians.name())),
        allow: listings(set, true),
        deny: listings(set, false),
        budgets: Some(budgets).filter(|budgets: &Vec<_>| !budgets.is_empty()),
        descriptors: Some(Rules(Some(rules)).into()),
    };
    serde_json::to_string_pretty(&file).map(|text| text + "\n")
}

/// Entries of one of the lists; none if it is empty.
fn listings(set: &RuleSet, allow: bool) -> Option<Vec<Placed<WordOr<shape::Listing>>>> {
    let entries = set.lists.iter().filter(|(_, entry)| entry.allow == allow);
    let entries: Vec<_> = entries
        .map(|(selector, Listing { allow: _, reason, until })| {
            let address = selector.to_string();
            if reason.is_none() && until.is_none() {
                return WordOr::Word(Some(address)).into();
            }
            let reason = reason.as_deref().map(text);
            let until = until.map(|until| text(until_text(until)));
            WordOr::Map(shape::Listing { address: Some(text(&address)), reason, until }).into()
        })
        .collect();
    Some(entries).filter(|entries| !entries.is_empty())
}

#[derive(Clone, Copy)]
struct Writer {
    /// Bursts that are the default for it are left out.
    max_frame: Option<u64>,
}

impl Writer {
    fn rule(self, rule: &Rule) -> Descriptor {
        let Rule { name, label, path: Path(parts), terms } = rule;
        let label = label.as_ref().map(|label| Descriptor {
            key: Some(text("generic_key")),
            value: Some(value(label.to_string())),
            ..Descriptor::default()
        });
        let levels = label.into_iter().chain(parts.iter().map(level)).rev();
        let mut inner: Option<Descriptor> = None;
        for level in levels {
            inner = Some(match inner {
                None => self.terms(level, name.as_deref(), terms),
                Some(inner) => {
                    let descriptors = Some(vec![Item(inner.into())].into());
                    Descriptor { descriptors, ..level }
                }
            });
        }
        // A rule without keys has a label, so there is a level.
        inner.unwrap_or_default()
    }

    /// A level with what the rule does.
    fn terms(self, level: Descriptor, name: Option<&str>, terms: &Terms) -> Descriptor {
        match terms {
            Terms::Unlimited => {
                let name = name.map(text);
                let limit =
                    shape::RateLimit { name, unlimited: flag(true), ..shape::RateLimit::default() };
                Descriptor { rate_limit: Some(boxed(limit)), ..level }
            }
            Terms::Budget(budget) => Descriptor { budget: Some(text(budget)), ..level },
            Terms::Limits(limits) => {
                let (rate_limit, rate_limits) = self.limits(name, limits);
                let Limits { limits, over, shadow, full, on_loss, sharing } = limits;
                Descriptor {
                    rate_limit,
                    rate_limits,
                    action: action(over).or_else(|| block(limits)),
                    shadow_mode: flag(*shadow),
                    on_full: (*full != Full::default()).then(|| full.name()).map(text),
                    on_daemon_loss: on_daemon_loss(*on_loss),
                    scope: sharing.as_ref().map(|_| text("cluster")),
                    cluster: sharing.as_deref().and_then(cluster),
                    ..level
                }
            }
        }
    }

    fn budget(self, budget: &Budget) -> shape::Budget {
        let Limits { limits: _, over, shadow, full: _, on_loss, sharing } = &budget.limits;
        let (rate_limit, rate_limits) = self.limits(None, &budget.limits);
        shape::Budget {
            name: Some(text(&budget.name)),
            rate_limit,
            rate_limits,
            action: action(over),
            shadow_mode: flag(*shadow),
            on_daemon_loss: on_daemon_loss(*on_loss),
            scope: sharing.as_ref().map(|_| text("cluster")),
            cluster: sharing.as_deref().and_then(cluster),
        }
    }

    /// `rate_limit` or `rate_limits`.
    fn limits(self, name: Option<&str>, limits: &Limits) -> (One, Several) {
        let names = std::iter::once(name).chain(std::iter::repeat(None));
        let limits = limits
            .limits
            .iter()
            .zip(names)
            .map(|(limit, name)| shape::RateLimit { name: name.map(text), ..self.limit(&limit) });
        let mut limits: Vec<Placed<shape::RateLimit>> = limits.map(Placed::from).collect();
        if limits.len() <= 1 {
            (limits.pop().map(Box::new), None)
        } else {
            (None, Some(boxed(limits)))
        }
    }

    fn limit(self, limit: &RuleLimit) -> shape::RateLimit {
        let Quota { count, requests_per_unit, period } = limit.meter.quota();
        let mut out = shape::RateLimit {
            unit: Some(text(period.unit.name())),
            unit_multiplier: multiplier(period).map(Box::new),
            requests_per_unit: Some(number(requests_per_unit)),
            count: match count {
                Count::Packets => None,
                other => Some(text(other.name())),
            },
            mark: limit.mark.map(|marking| boxed(WordOr::Map(mark(marking)))),
            ..shape::RateLimit::default()
        };
        match &limit.meter {
            Meter::TokenBucket(RateLimit { burst, .. }) => {
                let default = self
                    .max_frame
                    .map(|max_frame| default_burst(count, requests_per_unit, max_frame));
                out.burst = (default != Some(*burst)).then_some(*burst).map(number);
            }
            other => out.algorithm = Some(text(other.algorithm())),
        }
        match &limit.meter {
            Meter::LeakyBucket { backlog, .. } => out.backlog = Some(time(*backlog)),
            Meter::SlidingSlots { slots, strict, .. } => {
                (out.slots, out.strict) = (Some(number(u64::from(*slots))), flag(*strict));
            }
            Meter::TokenBucket(_)
            | Meter::FixedWindow(_)
            | Meter::SlidingLog(_)
            | Meter::SlidingCounter(_) => {}
        }
        match &limit.upper {
            None => {}
            Some(Upper::Ceiling(upper)) => out.ceiling = Some(boxed(rate_of(upper))),
            Some(Upper::Peak(upper)) => out.peak = Some(boxed(rate_of(upper))),
            Some(Upper::Excess(upper)) => out.excess = Some(boxed(rate_of(upper))),
        }
        out
    }
}

/// `rate_limit`, if it is that.
type One = Option<Box<Placed<shape::RateLimit>>>;

/// `rate_limits`, if it is that.
type Several = Option<Box<Placed<Vec<Placed<shape::RateLimit>>>>>;

/// One level of a path, with nothing in it yet.
fn level(part: &Part) -> Descriptor {
    let value = part.value().map(value);
    let mut level = Descriptor { key: Some(text(part.key())), value, ..Descriptor::default() };
    if let Part::Source(masks, _) = part
        && *masks != SOURCE_MASKS
    {
        let bits = |mask: Option<u8>| mask.map(u64::from).map(number);
        (level.v4_prefix_mask_len, level.v6_prefix_mask_len) = (bits(masks.v4), bits(masks.v6));
    }
    level
}

fn rate_of(rate: &RateLimit) -> shape::Rate {
    let RateLimit { requests_per_unit, period, burst, .. } = *rate;
    shape::Rate {
        rate: None,
        unit: Some(text(period.unit.name())),
        unit_multiplier: multiplier(period),
        requests_per_unit: Some(number(requests_per_unit)),
        burst: Some(number(burst)),
    }
}

/// `unit_multiplier`, unless it is 1.
fn multiplier(period: Period) -> Option<Scalar> {
    (period.multiplier != 1).then(|| number(u64::from(period.multiplier)))
}

fn mark(mark: Mark) -> shape::Mark {
    match mark {
        Mark::Dscp(dscp) => shape::Mark { dscp: Some(number(u64::from(dscp))), ecn: None },
        Mark::Ecn => shape::Mark { dscp: None, ecn: flag(true) },
    }
}

fn action(over: &Over) -> Option<Box<Placed<WordOr<shape::Action>>>> {
    let none = shape::Action::default;
    let action = match over {
        Over::Drop => return None,
        Over::Reject => return Some(boxed(WordOr::Word(Some(over.name().to_owned())))),
        Over::Mark(marking) => {
            shape::Action { mark: Some(boxed(WordOr::Map(mark(*marking)))), ..none() }
        }
        Over::Class(name) => shape::Action { class: Some(text(name)), ..none() },
        Over::Interface(name) => shape::Action { interface: Some(text(name)), ..none() },
        Over::Cpu(cpu) => shape::Action { cpu: Some(number(u64::from(*cpu))), ..none() },
        Over::Ban(ban) => shape::Action { ban: Some(boxed(WordOr::Map(banning(ban)))), ..none() },
    };
    Some(boxed(WordOr::Map(action)))
}

/// The action of a rule that drops everything, which a rule with limits need not say.
fn block(limits: &LimitList) -> Option<Box<Placed<WordOr<shape::Action>>>> {
    limits.is_empty().then(|| boxed(WordOr::Word(Some(Over::Drop.name().to_owned()))))
}

fn banning(ban: &Ban) -> shape::Ban {
    shape::Ban {
        first: Some(time(ban.first)),
        longest: Some(time(ban.longest)),
        memory: Some(time(ban.memory)),
        strikes: Some(number(u64::from(ban.strikes))),
        evidence: Some(text(match ban.evidence {
            Evidence::None => "none",
            Evidence::Established => "established",
        })),
    }
}

fn on_daemon_loss(on_loss: OnLoss) -> Option<Scalar> {
    (on_loss != OnLoss::default()).then(|| text(on_loss.name()))
}

/// How nodes share a budget: what is not the default of it.
fn cluster(sharing: &Sharing) -> Option<Box<Placed<shape::Cluster>>> {
    let default = Sharing::default();
    if *sharing == default {
        return None;
    }
    let Sharing { sync, share, share_of_burst, lease_cap, on_partition, strict } = *sharing;
    let part = |part: Share| text(part.to_string());
    Some(boxed(shape::Cluster {
        sync: (sync != default.sync).then(|| time(sync)),
        share: (share != default.share).then(|| part(share)),
        share_of_burst: (share_of_burst != default.share_of_burst).then(|| part(share_of_burst)),
        lease_cap: (lease_cap != default.lease_cap).then(|| part(lease_cap)),
        on_partition: (on_partition != OnPartition::default()).then(|| text(on_partition.name())),
        strict: flag(strict),
    }))
}

fn text(text: impl Into<String>) -> Scalar {
    let text: String = text.into();
    Placed::from(Some(text))
}

fn number(number: u64) -> Scalar {
    text(number.to_string())
}

fn time(time: Duration) -> Scalar {
    text(humantime::format_duration(time).to_string())
}

fn value(text: String) -> Placed<OneOrMany> {
    Placed::from(OneOrMany::One(Some(text)))
}

/// A field that is there only if it says yes.
fn flag(flag: bool) -> Option<Placed<bool>> {
    flag.then(|| Placed::from(flag))
}

fn boxed<T>(value: T) -> Box<Placed<T>> {
    Box::new(Placed::from(value))
}
