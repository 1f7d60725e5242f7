//! All counters.

use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::{RuleCounters, Tally};
use limiter_text::plain::clean;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::status::labelled;
use super::{Counts, words};
use crate::render::{Render, Table, bytes, line, number, push, shown_reason, table, titled};

/// `GET /v1/stats`. `seen` is always the sum of `passed` and `dropped`, and of all reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Stats {
    /// The rule set in force. A rule of another one may have another counter.
    #[serde(default)]
    pub generation: u64,
    /// All packets that reached the program.
    pub seen: Counts,
    /// Packets that went on.
    pub passed: Counts,
    /// Packets that were dropped.
    pub dropped: Counts,
    /// Counts by reason.
    pub reasons: Vec<ReasonCounts>,
    /// Counts by interface that the program is on.
    #[serde(default)]
    pub interfaces: Vec<InterfaceCounts>,
    /// Counts by rule in force.
    pub rules: Vec<RuleCounts>,
    /// Counts by budget in force.
    #[serde(default)]
    pub budgets: Vec<RuleCounts>,
    /// Counts of all rules that were removed.
    pub removed: Outcomes,
}

/// Packets with one verdict for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReasonCounts {
    /// The reason's name.
    pub reason: String,
    /// `pass` or `drop`.
    #[schema(value_type = words::Verdict)]
    pub verdict: String,
    /// Frames.
    pub packets: u64,
    /// Bytes of the frames.
    pub bytes: u64,
}

/// Packets that came in by one interface or went out by it, since the program is on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InterfaceCounts {
    /// The name, or several names whose packets are counted together: `eth0, eth1`.
    pub interface: String,
    /// Name of what is behind it, as a container; of several, those that are known.
    #[serde(default)]
    pub label: Option<String>,
    /// Direction of the packets: `in` or `out`.
    #[schema(value_type = words::OneDirection)]
    pub direction: String,
    /// Packets that went on.
    pub passed: Counts,
    /// Packets that were dropped.
    pub dropped: Counts,
}

/// Counts of one rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleCounts {
    /// Sources or keys that the rule is for.
    pub rule: String,
    /// The name that the author of the rule gave it.
    #[serde(default)]
    pub rule_name: Option<String>,
    /// Packets that it let pass.
    pub passed: Counts,
    /// Packets that it dropped.
    pub dropped: Counts,
    /// Of what passed: what it would drop, were it not in shadow mode.
    pub shadowed: Counts,
    /// Of what passed: what was over a limit, and was marked or went another way.
    #[serde(default)]
    pub marked: Counts,
}

/// Counts of all rules together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Outcomes {
    /// Packets that went on.
    pub passed: Counts,
    /// Packets that were dropped.
    pub dropped: Counts,
    /// Of what passed: what would be dropped, were it not for shadow mode.
    pub shadowed: Counts,
    /// Of what passed: what was over a limit, and was marked or went another way.
    #[serde(default)]
    pub marked: Counts,
}

impl From<RuleCounters> for Outcomes {
    fn from(RuleCounters { passed, dropped, shadowed, marked }: RuleCounters) -> Self {
        let (passed, dropped) = (passed.into(), dropped.into());
        Self { passed, dropped, shadowed: shadowed.into(), marked: marked.into() }
    }
}

fn counts(Counts { packets, bytes: length }: Counts) -> [String; 2] {
    [number(packets), bytes(length)]
}

/// [`Stats`] of which people see all, with what never counted a packet.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct AllStats(pub Stats);

impl Render for AllStats {
    fn render(&self, text: &mut String) {
        self.0.shown(true, text);
    }
}

/// Without what never counted a packet.
impl Render for Stats {
    fn render(&self, text: &mut String) {
        self.shown(false, text);
    }
}

/// The verdict of a reason, as it is written.
pub const fn verdict(reason: Reason) -> &'static str {
    match reason.verdict() {
        Verdict::Pass => "pass",
        Verdict::Drop => "drop",
    }
}

impl ReasonCounts {
    /// The packets that left with a reason.
    pub fn new(reason: Reason, Tally { packets, bytes }: Tally) -> Self {
        let (reason, verdict) = (reason.name().to_owned(), verdict(reason).to_owned());
        Self { reason, verdict, packets, bytes }
    }
}

impl RuleCounts {
    /// The counts of a rule or budget, with the name that its author gave it.
    pub fn new(rule: String, rule_name: Option<String>, counters: RuleCounters) -> Self {
        let Outcomes { passed, dropped, shadowed, marked } = counters.into();
        Self { rule, rule_name, passed, dropped, shadowed, marked }
    }

    /// True if it never counted a packet.
    const fn is_zero(&self) -> bool {
        let Self { passed, dropped, shadowed, marked, .. } = self;
        passed.packets == 0 && dropped.packets == 0 && shadowed.packets == 0 && marked.packets == 0
    }
}

impl Stats {
    fn shown(&self, all: bool, text: &mut String) {
        let mut totals = table(&["VERDICT", "REASON", ">PACKETS", ">BYTES"]);
        // Most reasons never come.
        for reason in self.reasons.iter().filter(|reason| all || reason.packets > 0) {
            totals.add_row([
                reason.verdict.clone(),
                shown_reason(&reason.reason),
                number(reason.packets),
                bytes(reason.bytes),
            ]);
        }
        for (name, sum) in [("passed", self.passed), ("dropped", self.dropped), ("seen", self.seen)]
        {
            let [packets, bytes] = counts(sum);
            totals.add_row(["sum".to_owned(), name.to_owned(), packets, bytes]);
        }
        push(text, &totals);
        text.push('\n');
        let mut interfaces = table(&[
            "INTERFACE",
            "DIRECTION",
            ">PASSED",
            "?>PASSED BYTES",
            ">DROPPED",
            "?>DROPPED BYTES",
        ]);
        for InterfaceCounts { interface, label, direction, passed, dropped } in &self.interfaces {
            let names = vec![labelled(interface, label.as_deref()), clean(direction)];
            let row = [names, counts(*passed).to_vec(), counts(*dropped).to_vec()];
            interfaces.add_row(row.concat());
        }
        if !self.interfaces.is_empty() {
            push(text, &interfaces);
            text.push('\n');
        }
        let Outcomes { passed, dropped, shadowed, marked } = self.removed;
        let rule = "(removed rules)".to_owned();
        let removed = RuleCounts { rule, rule_name: None, passed, dropped, shadowed, marked };
        let rules = counted(self.rules.iter().chain([&removed]), all);
        if !rules.is_empty() {
            push(text, &outcomes("RULE", &rules));
        }
        let budgets = counted(self.budgets.iter(), all);
        if !budgets.is_empty() {
            text.push('\n');
            push(text, &outcomes("BUDGET", &budgets));
        }
        let zeros = self.rules.iter().chain(&self.budgets).filter(|rule| rule.is_zero()).count();
        if zeros > 0 && !all {
            let (rules, have) = if zeros == 1 { ("rule", "has") } else { ("rules", "have") };
            let zeros = number(u64::try_from(zeros).unwrap_or(u64::MAX));
            line(text, format_args!("{zeros} {rules} {have} no packet yet: --all shows all"));
        }
    }
}

/// The rules that counted packets, or all.
fn counted<'a>(rules: impl Iterator<Item = &'a RuleCounts>, all: bool) -> Vec<&'a RuleCounts> {
    rules.filter(|rule| all || !rule.is_zero()).collect()
}

/// A row for each rule.
pub fn outcomes(what: &str, rules: &[&RuleCounts]) -> Table {
    let mut table = table(&[
        what,
        ">PASSED",
        "?>PASSED BYTES",
        ">DROPPED",
        "?>DROPPED BYTES",
        "?>WOULD DROP",
        "?>MARKED",
    ]);
    for rule in rules {
        let row = [
            vec![titled(Some(&rule.rule), rule.rule_name.as_deref())],
            counts(rule.passed).to_vec(),
            counts(rule.dropped).to_vec(),
            vec![number(rule.shadowed.packets), number(rule.marked.packets)],
        ];
        table.add_row(row.concat());
    }
    table
}
