//! Rules as a rule file again: JSON, which is YAML.

use limiter_common::wire::{Count, Evidence, Full, OnLoss};
use serde::Serialize;

use crate::rules::model::{
    Ban, Budget, Limits, Mark, Martians, Meter, Over, Part, Path, Quota, RateLimit, Rule,
    RuleLimit, RuleSet, SOURCE_MASKS, Terms, Upper,
};
use crate::rules::rate_text::default_burst;

#[derive(Serialize)]
struct File<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    domain: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replies: Option<RateOut>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bans: Option<RateOut>,
    #[serde(skip_serializing_if = "Option::is_none")]
    martians: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    budgets: Vec<BudgetOut<'a>>,
    descriptors: Vec<Descriptor<'a>>,
}

#[derive(Serialize)]
struct BudgetOut<'a> {
    name: &'a str,
    #[serde(flatten)]
    does: Does<'a>,
}

#[derive(Default, Serialize)]
struct Descriptor<'a> {
    key: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    v4_prefix_mask_len: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    v6_prefix_mask_len: Option<u8>,
    #[serde(flatten)]
    does: Does<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    descriptors: Vec<Self>,
}

/// What stands at the end of a path, and in a budget.
#[derive(Default, Serialize)]
struct Does<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_limit: Option<Limit<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rate_limits: Vec<Limit<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<ActionOut<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    shadow_mode: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_full: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_daemon_loss: Option<&'static str>,
}

#[derive(Default, Serialize)]
struct Limit<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests_per_unit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    burst: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    algorithm: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backlog: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slots: Option<u8>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    strict: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    ceiling: Option<RateOut>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peak: Option<RateOut>,
    #[serde(skip_serializing_if = "Option::is_none")]
    excess: Option<RateOut>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mark: Option<MarkOut>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unlimited: bool,
}

#[derive(Serialize)]
struct RateOut {
    unit: &'static str,
    requests_per_unit: u64,
    burst: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum MarkOut {
    Dscp(u8),
    Ecn(bool),
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum ActionOut<'a> {
    Reject,
    Mark(MarkOut),
    Class(&'a str),
    Interface(&'a str),
    Cpu(u32),
    Ban(BanOut),
}

#[derive(Serialize)]
struct BanOut {
    first: String,
    longest: String,
    memory: String,
    strikes: u32,
    evidence: &'static str,
}

/// Writes a rule set so that [`super::RuleFile::parse`] reads the same one. A burst that is the
/// default for `max_frame` is left out, so that it follows the interfaces.
pub fn render(domain: &str, set: &RuleSet, max_frame: u64) -> Result<String, serde_json::Error> {
    write(Some(domain), set, Writer { max_frame: Some(max_frame) })
}

/// A rule file that is written rule by rule, with every burst, so that it means the same beside any interface.
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

    fn descriptor(&mut self, descriptor: &Descriptor<'_>) -> Result<(), serde_json::Error> {
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

const EXACT: Writer = Writer { max_frame: None };

fn write(domain: Option<&str>, set: &RuleSet, writer: Writer) -> Result<String, serde_json::Error> {
    let file = File {
        domain,
        replies: set.replies.as_ref().map(rate),
        bans: set.bans.as_ref().map(rate),
        martians: set.martians.map(Martians::name),
        budgets: set.budgets.iter().map(|budget| writer.budget(budget)).collect(),
        // Last: `ExactFile` writes them one by one.
        descriptors: set.rules.iter().map(|rule| writer.rule(rule)).collect(),
    };
    serde_json::to_string_pretty(&file).map(|text| text + "\n")
}

#[derive(Clone, Copy)]
struct Writer {
    /// Bursts that are the default for it are left out.
    max_frame: Option<u64>,
}

impl Writer {
    fn rule(self, rule: &Rule) -> Descriptor<'_> {
        let Rule { name, label, path: Path(parts), terms } = rule;
        let label = label.as_ref().map(|label| Descriptor {
            key: "generic_key",
            value: Some(label.to_string()),
            ..Descriptor::default()
        });
        let levels = label.into_iter().chain(parts.iter().map(level)).rev();
        let mut inner: Option<Descriptor<'_>> = None;
        for mut level in levels {
            match inner.take() {
                None => level.does = self.does(name.as_deref(), terms),
                Some(inner) => level.descriptors.push(inner),
            }
            inner = Some(level);
        }
        // A rule without keys has a label, so there is a level.
        inner.unwrap_or_default()
    }

    fn budget(self, budget: &Budget) -> BudgetOut<'_> {
        let limits = &budget.limits;
        let does = self.limits(None, limits);
        BudgetOut { name: &budget.name, does }
    }

    fn does<'a>(self, name: Option<&'a str>, terms: &'a Terms) -> Does<'a> {
        match terms {
            Terms::Unlimited => {
                let limit = Limit { name, unlimited: true, ..Limit::default() };
                Does { rate_limit: Some(limit), ..Does::default() }
            }
            Terms::Budget(budget) => Does { budget: Some(budget), ..Does::default() },
            Terms::Limits(limits) => self.limits(name, limits),
        }
    }

    fn limits<'a>(self, name: Option<&'a str>, limits: &'a Limits) -> Does<'a> {
        let Limits { limits, over, shadow: shadow_mode, full, on_loss } = limits;
        let on_full = (*full != Full::default()).then_some(full.name());
        let shadow_mode = *shadow_mode;
        let on_daemon_loss = (*on_loss != OnLoss::default()).then_some(on_loss.name());
        let action = action(over);
        let mut does = Does { action, shadow_mode, on_full, on_daemon_loss, ..Does::default() };
        if let (Some(only), 1) = (limits.first(), limits.len()) {
            does.rate_limit = Some(Limit { name, ..self.limit(&only) });
        } else {
            let names = std::iter::once(name).chain(std::iter::repeat(None));
            let limits = limits.iter().zip(names);
            does.rate_limits =
                limits.map(|(limit, name)| Limit { name, ..self.limit(&limit) }).collect();
        }
        does
    }

    fn limit<'a>(self, limit: &RuleLimit) -> Limit<'a> {
        let Quota { count, requests_per_unit, unit } = limit.meter.quota();
        let mut out = Limit {
            unit: Some(unit.name()),
            requests_per_unit: Some(requests_per_unit),
            count: match count {
                Count::Packets => None,
                Count::Bytes => Some("bytes"),
                Count::Syns => Some("syns"),
                Count::Flows => Some("flows"),
            },
            mark: limit.mark.map(mark),
            ..Limit::default()
        };
        match &limit.meter {
            Meter::TokenBucket(RateLimit { burst, .. }) => {
                let default = self
                    .max_frame
                    .map(|max_frame| default_burst(count, requests_per_unit, max_frame));
                out.burst = (default != Some(*burst)).then_some(*burst);
            }
            other => out.algorithm = Some(other.algorithm()),
        }
        match &limit.meter {
            Meter::LeakyBucket { backlog, .. } => {
                out.backlog = Some(humantime::format_duration(*backlog).to_string());
            }
            Meter::SlidingSlots { slots, strict, .. } => {
                (out.slots, out.strict) = (Some(*slots), *strict);
            }
            Meter::TokenBucket(_)
            | Meter::FixedWindow(_)
            | Meter::SlidingLog(_)
            | Meter::SlidingCounter(_) => {}
        }
        match &limit.upper {
            None => {}
            Some(Upper::Ceiling(upper)) => out.ceiling = Some(rate(upper)),
            Some(Upper::Peak(upper)) => out.peak = Some(rate(upper)),
            Some(Upper::Excess(upper)) => out.excess = Some(rate(upper)),
        }
        out
    }
}

/// One level of a path, with nothing in it yet.
fn level<'a>(part: &Part) -> Descriptor<'a> {
    let mut level = Descriptor { key: part.key(), value: part.value(), ..Descriptor::default() };
    if let Part::Source(masks, _) = part
        && *masks != SOURCE_MASKS
    {
        (level.v4_prefix_mask_len, level.v6_prefix_mask_len) = (masks.v4, masks.v6);
    }
    level
}

fn rate(rate: &RateLimit) -> RateOut {
    let RateLimit { requests_per_unit, unit, burst, .. } = *rate;
    RateOut { unit: unit.name(), requests_per_unit, burst }
}

fn mark(mark: Mark) -> MarkOut {
    match mark {
        Mark::Dscp(dscp) => MarkOut::Dscp(dscp),
        Mark::Ecn => MarkOut::Ecn(true),
    }
}

fn action(over: &Over) -> Option<ActionOut<'_>> {
    Some(match over {
        Over::Drop => return None,
        Over::Reject => ActionOut::Reject,
        Over::Mark(marking) => ActionOut::Mark(mark(*marking)),
        Over::Class(name) => ActionOut::Class(name),
        Over::Interface(name) => ActionOut::Interface(name),
        Over::Cpu(cpu) => ActionOut::Cpu(*cpu),
        Over::Ban(ban) => ActionOut::Ban(banning(ban)),
    })
}

fn banning(ban: &Ban) -> BanOut {
    let time = |time| humantime::format_duration(time).to_string();
    BanOut {
        first: time(ban.first),
        longest: time(ban.longest),
        memory: time(ban.memory),
        strikes: ban.strikes,
        evidence: match ban.evidence {
            Evidence::None => "none",
            Evidence::Established => "established",
        },
    }
}
