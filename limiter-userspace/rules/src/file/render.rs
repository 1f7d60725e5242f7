//! Rules as a rule file again: as people write them, or as JSON, which is YAML, for a file that
//! nobody reads.

use std::net::Ipv4Addr;
use std::time::Duration;

use limiter_common::wire::{Count, Evidence, Full, OnLoss};
use limiter_sharing::OnPartition;
use serde::Serialize;
use serde_saphyr::{SerializeError, ser_options};

use super::one_or_many::{OneOrMany, WordOr};
use super::placed::{Item, Placed, Scalar};
use super::shape::{self, Descriptor, File, Rules};
use super::table::Written as _;
use crate::compile::display_rate;
use crate::model::{
    Ban, Budget, Delay, Direction, LimitList, Limits, Listing, Mark, Meter, Over, Part, Path,
    Period, Quota, RateLimit, Rule, RuleLimit, RuleSet, SOURCE_MASKS, Share, Sharing, Terms, Upper,
    until_text,
};
use crate::rate_text::{RateText, default_burst};

/// Writes a rule set so that [`super::RuleFile::parse`] reads the same one. A burst that is the
/// default for `max_frame` is left out, so that it follows the interfaces.
pub fn render(domain: &str, set: &RuleSet, max_frame: u64) -> Result<String, serde_json::Error> {
    let writer = Writer { max_frame: Some(max_frame) };
    let rules = set.rules.iter().map(|rule| Item(writer.rule(rule).into())).collect();
    let descriptors = Some(Rules(Some(rules)).into());
    let file = File { descriptors, ..writer.head(Some(domain), set) };
    serde_json::to_string_pretty(&file).map(|text| text + "\n")
}

/// A rule file in the form that people write, written rule by rule. It means the same beside any
/// interface.
#[derive(Debug, Default)]
pub struct ExactFile {
    text: String,
    some: bool,
}

/// A line that begins the rules.
const RULES: &str = "descriptors:\n";

impl ExactFile {
    /// Writes all but the rules, behind a line of a comment.
    ///
    /// # Errors
    ///
    /// When it cannot be written as YAML.
    pub fn begin(
        comment: &str,
        domain: Option<&str>,
        set: &RuleSet,
    ) -> Result<Self, SerializeError> {
        Ok(Self { text: format!("# {comment}\n{}", head(domain, set)?), some: false })
    }

    fn rules(&mut self) {
        if !std::mem::replace(&mut self.some, true) {
            self.text.push_str(RULES);
        }
    }

    /// A line of a comment before a rule.
    pub fn comment(&mut self, text: &str) {
        self.rules();
        self.text.extend([ITEM, "# ", text, "\n"]);
    }

    /// A rule.
    ///
    /// # Errors
    ///
    /// When it cannot be written as YAML.
    pub fn rule(&mut self, rule: &Rule) -> Result<(), SerializeError> {
        self.rules();
        self.text.push_str(&item(rule, ITEM)?);
        Ok(())
    }

    /// Ends the file, and gives its text.
    pub fn end(mut self) -> String {
        if !self.some {
            self.text.push_str("descriptors: []\n");
        }
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

/// Indent of the items of lists.
pub(super) const ITEM: &str = "  ";

/// Writes a rule set in parts, for somebody who puts words between them. It means the same beside
/// any interface.
///
/// # Errors
///
/// When it cannot be written as YAML.
pub fn blocks(set: &RuleSet) -> Result<Blocks, SerializeError> {
    let rules = set.rules.iter().map(|rule| item(rule, ITEM)).collect::<Result<_, _>>()?;
    Ok(Blocks { head: head(None, set)?, rules })
}

/// A rule as an item of `descriptors`, indented. It means the same beside any interface.
pub(super) fn item(rule: &Rule, indent: &str) -> Result<String, SerializeError> {
    yaml(&[EXACT.rule(rule)], indent)
}

/// All of a rule set but its rules; empty if there is nothing else.
fn head(domain: Option<&str>, set: &RuleSet) -> Result<String, SerializeError> {
    let head = EXACT.head(domain, set);
    if head.written().next().is_some() { yaml(&head, "") } else { Ok(String::new()) }
}

/// YAML with each line indented.
fn yaml(value: &impl Serialize, indent: &str) -> Result<String, SerializeError> {
    let options = ser_options! {
        // As people write lists, and as the pages show them.
        compact_list_indent: false,
        // A name stays on its line.
        prefer_block_scalars: false,
    };
    let text = serde_saphyr::to_string_with_options(value, options)?;
    let mut lines = String::with_capacity(text.len());
    for line in text.lines() {
        let (before, value) = bare(line);
        lines.extend([indent, before, value, "\n"]);
    }
    Ok(lines)
}

/// A line of YAML in two parts, without quotes around an IPv4 address: the writer takes it for a
/// number, and readers do not.
fn bare(line: &str) -> (&str, &str) {
    let quoted = line.strip_suffix('"').and_then(|line| line.rsplit_once('"'));
    quoted.filter(|(_, value)| value.parse::<Ipv4Addr>().is_ok()).unwrap_or((line, ""))
}

const EXACT: Writer = Writer { max_frame: None };

/// Entries of one of the lists; `None` if it is empty.
fn listings(set: &RuleSet, allow: bool) -> Option<Placed<Vec<Placed<WordOr<shape::Listing>>>>> {
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
    (!entries.is_empty()).then(|| entries.into())
}

#[derive(Clone, Copy)]
struct Writer {
    /// Bursts that are the default for this frame are left out; for `None`, those that are the
    /// default beside any interface.
    max_frame: Option<u64>,
}

/// No interface has longer frames.
const MOST_FRAME: u64 = 131_071;

impl Writer {
    fn head(self, domain: Option<&str>, set: &RuleSet) -> File {
        let budgets: Vec<_> = set.budgets.iter().map(|budget| self.budget(budget).into()).collect();
        File {
            domain: domain.map(text),
            replies: set.replies.as_ref().map(|rate| self.rate(rate).into()),
            bans: set.bans.as_ref().map(|rate| self.rate(rate).into()),
            martians: set.martians.map(|martians| text(martians.name())),
            allow: listings(set, true),
            deny: listings(set, false),
            budgets: (!budgets.is_empty()).then(|| budgets.into()),
            ..File::default()
        }
    }

    /// The burst of a rate, unless it is the default.
    fn burst(self, rate: &RateLimit) -> Option<Scalar> {
        let RateLimit { count, requests_per_unit, burst, .. } = *rate;
        let default = |max_frame| default_burst(count, requests_per_unit, max_frame);
        let is_default = match self.max_frame {
            Some(max_frame) => default(max_frame) == burst,
            None => default(0) == burst && default(MOST_FRAME) == burst,
        };
        (!is_default).then_some(burst).map(number)
    }

    /// A rate beside others, which say what is counted.
    fn rate(self, rate: &RateLimit) -> shape::Rate {
        let RateLimit { requests_per_unit, period, .. } = *rate;
        let burst = self.burst(rate);
        match words(rate.quota()) {
            rate @ Some(_) => shape::Rate { rate, burst, ..shape::Rate::default() },
            None => shape::Rate {
                rate: None,
                unit: Some(text(period.unit.name())),
                unit_multiplier: multiplier(period),
                requests_per_unit: Some(number(requests_per_unit)),
                burst,
            },
        }
    }

    fn rule(self, rule: &Rule) -> Descriptor {
        let Rule { name, label, path: Path { parts, direction }, terms } = rule;
        let label = label.as_ref().map(|label| Descriptor {
            key: Some(text("generic_key")),
            value: Some(value(label.to_string())),
            ..Descriptor::default()
        });
        let levels =
            label.into_iter().chain(parts.iter().map(|part| level(part, *direction))).rev();
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
        let outermost = inner.unwrap_or_default();
        let direction = (*direction != Direction::default()).then(|| text(direction.name()));
        Descriptor { direction, ..outermost }
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
        let quota = limit.meter.quota();
        let Quota { count, requests_per_unit, period, .. } = quota;
        let mut out = match words(quota) {
            rate @ Some(_) => shape::RateLimit { rate, ..shape::RateLimit::default() },
            None => shape::RateLimit {
                unit: Some(text(period.unit.name())),
                unit_multiplier: multiplier(period).map(Box::new),
                requests_per_unit: Some(number(requests_per_unit)),
                count: match count {
                    Count::Packets => None,
                    other => Some(text(other.name())),
                },
                ..shape::RateLimit::default()
            },
        };
        out.mark = limit.mark.map(|marking| boxed(WordOr::Map(mark(marking))));
        match &limit.meter {
            Meter::TokenBucket(rate) => out.burst = self.burst(rate),
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
            Some(Upper::Ceiling(upper)) => out.ceiling = Some(boxed(self.rate(upper))),
            Some(Upper::Peak(upper)) => out.peak = Some(boxed(self.rate(upper))),
            Some(Upper::Excess(upper)) => out.excess = Some(boxed(self.rate(upper))),
        }
        out
    }
}

type One = Option<Box<Placed<shape::RateLimit>>>;

type Several = Option<Box<Placed<Vec<Placed<shape::RateLimit>>>>>;

/// One level of a path, with nothing in it yet.
fn level(part: &Part, direction: Direction) -> Descriptor {
    let value = part.value().map(value);
    let mut level =
        Descriptor { key: Some(text(part.key(direction))), value, ..Descriptor::default() };
    if let Part::Source(masks, _) = part
        && *masks != SOURCE_MASKS
    {
        let bits = |mask: Option<u8>| mask.map(u64::from).map(number);
        (level.v4_prefix_mask_len, level.v6_prefix_mask_len) = (bits(masks.v4), bits(masks.v6));
    }
    level
}

/// A rate as people write it, if that is read as the same one.
fn words(quota: Quota) -> Option<Box<Scalar>> {
    let words = display_rate(&quota.with_burst(0));
    let read = RateText::parse(&words).and_then(|rate| rate.quota(None, &words));
    (read == Ok(Some(quota))).then(|| Box::new(text(words)))
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
        Over::Delay(Delay { longest, ecn }) => {
            let wait = shape::Delay { longest: Some(time(*longest)), ecn: flag(*ecn) };
            shape::Action { delay: Some(boxed(WordOr::Map(wait))), ..none() }
        }
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

/// A field that is present only if it is true.
fn flag(flag: bool) -> Option<Placed<bool>> {
    flag.then(|| Placed::from(flag))
}

fn boxed<T>(value: T) -> Box<Placed<T>> {
    Box::new(Placed::from(value))
}
