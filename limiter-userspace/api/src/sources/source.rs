//! A source: its limit and its bucket now.

use limiter_text::plain::clean;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::explain::{ExplainLimit, Here};
use crate::limits::LimitView;
use crate::lists::{ListName, ListedSource, RULE_FILE};
use crate::render::{Render, duration, number, push, rate_of, seconds, table};
use crate::sources::{RuleDrops, SourceRow};

/// `GET /v1/sources/{address}`: one source, its limit and its bucket now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Source)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the answer")]
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
    /// The program or list that wrote that entry, or `rule file`; none for a person.
    #[serde(default)]
    pub listed_by: Option<String>,
    /// Entries for the same sources that it stands over.
    #[serde(default)]
    pub listed_beside: Vec<ListedSource>,
    /// Packets of it that passed, by all counters that it has now.
    pub passed: u64,
    /// Packets of it that were dropped, by whatever rule, list or ban: the sum of `by_rule`, but
    /// for what other sources share.
    pub dropped: u64,
    /// True if more may have passed: packets that no counter of it has.
    #[serde(default)]
    pub passed_at_least: bool,
    /// True if more was or may have been dropped: by lists, bans and rules that do not count each
    /// source, of which events report a part.
    #[serde(default)]
    pub dropped_at_least: bool,
    /// Units that would pass at once now, of the limit of which the least is left; none without a
    /// limit, and for one over all nodes.
    pub remaining: Option<u64>,
    /// Units of that limit that may come at once; none where that is not a number.
    #[serde(default)]
    pub of: Option<u64>,
    /// Nanoseconds until nothing of that limit is used; 0 where `remaining` is none.
    pub full_in_ns: u64,
    /// Base of this node's decisions, of a limit over all nodes.
    #[serde(default)]
    pub here: Option<Here>,
    /// Packets or bytes that would pass by that at once now.
    #[serde(default)]
    pub remaining_here: Option<u64>,
    /// All limits of the rule; `limit` and `burst` are about the first.
    #[serde(default)]
    pub limits: Vec<LimitView>,
    /// How much is left of each limit of the rule, and of the budget that it is charged to, in
    /// their order. `conforms` is of the shortest packet.
    #[serde(default)]
    pub left: Vec<ExplainLimit>,
    /// Action over the limits; none without limits of its own.
    #[serde(default)]
    pub action: Option<String>,
    /// The budget that it is charged to, if any.
    #[serde(default)]
    pub budget: Option<String>,
    /// Whole seconds until its ban ends, rounded up; none if it is not banned.
    #[serde(default)]
    pub banned_seconds: Option<u64>,
    /// The author of that ban: a rule, or in parentheses who else it was.
    #[serde(default)]
    pub banned_by: Option<String>,
    /// True if no host can have it, and the rules say that such sources are dropped.
    #[serde(default)]
    pub martian: bool,
    /// Rules on other keys, of all packets or of this source's, that may drop packets of it: the
    /// first of them.
    #[serde(default)]
    pub other_rules: Vec<String>,
    /// Number of all such rules.
    #[serde(default)]
    pub other_rules_in_all: u64,
    /// Packets of it by rule, those that dropped most first.
    #[serde(default)]
    pub by_rule: Vec<RuleDrops>,
    /// The source as it stands in `GET /v1/sources`, in each direction in which it is counted.
    #[serde(default)]
    pub rows: Vec<SourceRow>,
}

/// The packets of a source that its counters have, as one number each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Packets that passed.
    pub passed: u64,
    /// Packets that were dropped.
    pub dropped: u64,
    /// True if more may have passed: packets that no rule with a count of the source was asked
    /// about.
    pub passed_at_least: bool,
    /// True if more were dropped, or may have been, by what keeps no count of the source.
    pub dropped_at_least: bool,
}

impl SourceView {
    /// The source with its total.
    #[must_use]
    pub fn counted(self, total: Total) -> Self {
        let denied = self.listed == Some(ListName::Deny) || self.martian;
        let allowed = self.listed == Some(ListName::Allow);
        Self {
            passed: total.passed,
            dropped: total.dropped,
            passed_at_least: total.passed_at_least || allowed || self.rule.is_none(),
            dropped_at_least: total.dropped_at_least || denied || self.banned_seconds.is_some(),
            ..self
        }
    }
}

/// Text for a source that falls under no rule on sources.
pub fn without_rule(view: &SourceView) -> &'static str {
    let denied = view.listed == Some(ListName::Deny);
    if denied || view.martian || view.banned_seconds.is_some() || view.other_rules_in_all > 0 {
        "none on sources"
    } else {
        "none: not limited"
    }
}

/// Text for the rule of a source.
pub fn rule_text(view: &SourceView) -> String {
    match (&view.rule, &view.rule_name) {
        (Some(rule), Some(name)) => format!("{} ({rule})", clean(name)),
        (Some(rule), None) => rule.clone(),
        (None, _) => without_rule(view).to_owned(),
    }
}

/// Text about rules on other keys that may drop packets of a source, and about the commands that
/// report more.
pub fn other_rules(view: &SourceView) -> Option<String> {
    let all = view.other_rules_in_all;
    let named: Vec<_> = view.other_rules.iter().map(|rule| clean(rule)).collect();
    let more = all.saturating_sub(u64::try_from(named.len()).unwrap_or(0));
    let more = if more > 0 { format!(" and {} more", number(more)) } else { String::new() };
    (all > 0).then(|| format!("may drop packets of it, too: {}{more}", named.join("; ")))
}

/// The question that says what such rules do; for rules on what goes out, with that direction, and
/// in brackets where only some are.
pub fn question(view: &SourceView) -> String {
    let address = view.source.split_once('/').map_or(view.source.as_str(), |(address, _)| address);
    // A named rule has its keys in parentheses.
    let keys = |rule: &String| rule.rsplit_once(" (").map_or(0, |(name, _)| name.len() + 2);
    let goes_out =
        |rule: &&String| rule.get(keys(rule)..).is_some_and(|keys| keys.starts_with(OUT_KEY));
    let outgoing = view.other_rules.iter().filter(goes_out).count();
    let direction = match outgoing {
        0 => "",
        all if u64::try_from(all) == Ok(view.other_rules_in_all) => " --direction out",
        _ => " [--direction out]",
    };
    format!("limiter explain --from {} --to PORT/PROTOCOL{direction}", clean(address))
}

/// The first key of a rule for what goes out.
const OUT_KEY: &str = "direction=out";

/// What passed and what was dropped; for each direction, unless only packets that come in are
/// counted: the two have nothing in common.
pub fn totals(view: &SourceView) -> [String; 2] {
    if view.rows.iter().all(|row| matches!(row.direction.as_str(), "in" | "")) {
        return [
            counted(view.passed, view.passed_at_least),
            counted(view.dropped, view.dropped_at_least),
        ];
    }
    let way = |row: &SourceRow| match row.direction.as_str() {
        "both" => "in+out".to_owned(),
        direction => clean(direction),
    };
    let each = |count: &dyn Fn(&SourceRow) -> String| {
        let rows = view.rows.iter().map(|row| format!("{} {}", count(row), way(row)));
        rows.collect::<Vec<_>>().join(", ")
    };
    [
        each(&|row| counted(row.passed, row.passed_at_least)),
        each(&|row| counted(row.dropped, row.dropped_at_least)),
    ]
}

/// The author of an entry of a list, in words.
fn by_text(by: &str) -> String {
    if by == RULE_FILE { "by the rule file".to_owned() } else { format!("by {by}") }
}

/// An entry of a list that is not in force, in words: `allow by the rule file (office), it is ...`.
pub fn beside_text(entry: &ListedSource) -> String {
    let by = entry.by.as_deref().map_or_else(|| "by hand".to_owned(), by_text);
    let reason = entry.reason.as_deref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let instead = entry.not_in_force.as_deref().unwrap_or_default();
    clean(&format!("{} of {} {by}{reason}: {instead}", entry.list.name(), entry.source))
}

fn left_of(limit: &ExplainLimit) -> String {
    let ExplainLimit { remaining, size, count, .. } = limit;
    match size {
        Some(size) => format!("{} of {} {count}", number(*remaining), number(*size)),
        None => format!("{} {count} at once", number(*remaining)),
    }
}

/// Words behind one of several limits.
fn state_of(limit: &ExplainLimit) -> String {
    let drops = if limit.conforms { "" } else { ": this one drops now" };
    match limit.full_in_ns {
        Some(0) | None => drops.to_owned(),
        Some(full) => format!("{drops}, full in {}", duration(full)),
    }
}

/// A count of packets, which may be a part of them.
fn counted(packets: u64, at_least: bool) -> String {
    let words = if at_least { "at least " } else { "" };
    format!("{words}{}", number(packets))
}

fn by_rule(text: &mut String, rules: &[&RuleDrops]) {
    if rules.is_empty() {
        return;
    }
    let mut table = table(&["BY RULE", "REASON", ">KEYS", ">PASSED", ">DROPPED", ""]);
    let or_none = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), number);
    for rule in rules {
        table.add_row([
            rule.title(),
            rule.reason.clone(),
            or_none(rule.keys),
            or_none(rule.passed),
            number(rule.dropped),
            rule.said(),
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
        for (index, now) in self.rows.iter().filter(|row| row.loses()).enumerate() {
            row(if index == 0 { "now" } else { "" }, now.in_words());
        }
        if let Some(list) = self.listed {
            let what = match list {
                ListName::Allow => "allow: every packet passes",
                ListName::Deny => "deny: every packet is dropped",
            };
            let said = [self.listed_by.as_ref().map(|by| by_text(by)), self.listed_reason.clone()];
            let said: Vec<String> = said.into_iter().flatten().map(|word| clean(&word)).collect();
            let said = if said.is_empty() { said } else { vec![format!(" ({})", said.join(": "))] };
            row("list", format!("{what}{}", said.concat()));
            for entry in &self.listed_beside {
                row("", format!("not in force: {}", beside_text(entry)));
            }
        }
        if self.martian {
            row("martian", "no host can have this source: every packet is dropped".to_owned());
        }
        if let Some(left) = self.banned_seconds {
            let by = self.banned_by.as_deref().map(|by| format!(", by {}", clean(by)));
            let (left, by) = (seconds(left), by.unwrap_or_default());
            row("ban", format!("every packet is dropped for {left} more{by}"));
        }
        row("rule", rule_text(self));
        if let Some(limit) = &self.limit {
            // `count` is of the limit with the least left.
            let first = self.limits.first().map(|limit| limit.count.as_str());
            let count = first.or(self.count.as_deref()).unwrap_or_default();
            let effective = match self.effective_per_second {
                Some(_) => {
                    format!(" (enforced {})", rate_of(limit, self.effective_per_second, count))
                }
                None => String::new(),
            };
            let shadow =
                if self.shadow { ", in shadow mode: it would drop, and only counts" } else { "" };
            row("limit", format!("{limit}{effective}{shadow}"));
        }
        for limit in self.limits.iter().skip(1) {
            let effective = rate_of(&limit.rate, limit.effective_per_second, &limit.count);
            row("and", format!("{} (enforced {effective})", limit.text));
        }
        if let Some(action) = self.action.as_deref().filter(|action| *action != "drop") {
            row("over it", action.to_owned());
        }
        match self.left.as_slice() {
            // Of a daemon before, which said it of the first limit alone.
            [] => {
                if let (Some(remaining), Some(of)) = (self.remaining, self.of.or(self.burst)) {
                    let count = self.count.as_deref().unwrap_or("packets");
                    row("remaining", format!("{} of {} {count}", number(remaining), number(of)));
                    row("full in", duration(self.full_in_ns));
                }
            }
            [one] => {
                row("remaining", left_of(one));
                if let Some(full) = one.full_in_ns {
                    row("full in", duration(full));
                }
            }
            several => {
                for (index, limit) in several.iter().enumerate() {
                    let name = if index == 0 { "remaining" } else { "" };
                    row(name, format!("{} of {}{}", left_of(limit), limit.limit, state_of(limit)));
                }
            }
        }
        if let (Some(here), Some(left)) = (self.here, self.remaining_here) {
            let count = self.count.as_deref().unwrap_or("packets");
            row("over nodes", format!("{} {count} {}", number(left), here.words()));
        }
        let [passed, dropped] = totals(self);
        row("passed", passed);
        row("dropped", dropped);
        if !self.tracked {
            row("tracked", "no: it has no bucket for a rule on sources now".to_owned());
        }
        if let Some(rules) = other_rules(self) {
            row("others", rules);
            row("", format!("what they would do with a packet: `{}`", question(self)));
        }
        push(text, &table);
        *text = text.trim_start().to_owned();
        // One rule that has it all says nothing new.
        let is_all = |by: &RuleDrops| by.rule == self.rule && by.dropped == self.dropped;
        // Nor does one of which nothing is counted.
        let counts = |by: &&RuleDrops| by.dropped > 0 || by.passed != Some(0);
        let rules: Vec<_> = self.by_rule.iter().filter(counts).collect();
        match rules.as_slice() {
            [one] if is_all(one) && one.passed == Some(self.passed) => {}
            rules => by_rule(text, rules),
        }
    }
}
