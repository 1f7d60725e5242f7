//! Sources that are tracked: who stands out among all of them.

pub mod reach;
pub mod source;
pub mod top;

use std::fmt::Write as _;

use limiter_text::plain::clean;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::lists::ListName;
use crate::moment::Zone;
use crate::render::{Render, dropper, line, number, push, seconds, table};
use crate::words;

/// Sources in one answer, unless it is said otherwise.
pub const SOURCES: u32 = 20;

/// Sources in one answer at most.
pub const MOST_SOURCES: u32 = 1000;

/// Measures that rank sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// Packets that were dropped since the source is tracked
    #[default]
    Dropped,
    /// Packets that passed since the source is tracked
    Passed,
    /// Packets a second now, dropped or not
    Rate,
    /// Packets dropped a second now
    DropRate,
    /// The share of the burst that is used now
    Utilization,
}

impl By {
    /// All measures.
    pub const ALL: [Self; 5] =
        [Self::DropRate, Self::Dropped, Self::Rate, Self::Passed, Self::Utilization];

    /// Name of the measure in requests and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dropped => "dropped",
            Self::Passed => "passed",
            Self::Rate => "rate",
            Self::DropRate => "drop-rate",
            Self::Utilization => "utilization",
        }
    }

    /// True if the measure takes two readings.
    pub const fn is_rate(self) -> bool {
        matches!(self, Self::Rate | Self::DropRate)
    }
}

/// The query of `GET /v1/sources`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AskSources {
    /// Measure that ranks the sources: the first has the most of it.
    #[serde(default)]
    #[cfg_attr(feature = "clap", arg(
        long, value_enum, default_value_t = By::DropRate, help = "By what they stand out",
    ))]
    pub by: By,
    /// Number of sources; 20 when left out.
    #[serde(default)]
    #[param(value_type = Option<words::SourceCount>)]
    #[cfg_attr(feature = "clap", arg(
        long = "top", value_name = "N", default_value = "20", help = "How many",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_SOURCES)),
    ))]
    pub limit: Option<u32>,
    /// Prefix of the sources; all when left out.
    #[serde(default)]
    #[param(value_type = Option<words::Within>)]
    #[cfg_attr(feature = "clap", arg(long = "within", value_name = "PREFIX"))]
    #[cfg_attr(feature = "clap", arg(help = "Only sources in this prefix"))]
    pub prefix: Option<String>,
}

/// `GET /v1/sources`: those that stand out, of all that are tracked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SourceList {
    /// Measure that ranks the sources.
    pub by: By,
    /// IPv4 sources that were read.
    pub tracked_v4: u64,
    /// IPv6 sources that were read.
    pub tracked_v6: u64,
    /// Sources of both that are in the prefix that was asked for.
    pub within: u64,
    /// All drops since the maps were made, by what dropped them.
    #[serde(default)]
    pub dropped_by: DroppedBy,
    /// What is dropped now, in a sentence, from the same readings as the rates of the rows; none
    /// under an order that measures no rates.
    #[serde(default)]
    pub headline: Option<String>,
    /// Sources that rank first.
    pub sources: Vec<SourceRow>,
    /// Sources of those in the prefix of which nothing was dropped: under an order by drops they
    /// are not among the rows.
    #[serde(default)]
    pub lose_nothing: u64,
}

/// Packets of a source by one rule, or before any rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RuleDrops {
    /// The rule, or the budget; none where no rule was asked, as on the deny list. `(rules before)`
    /// has what a bucket counted more than its rule did since it is in force.
    pub rule: Option<String>,
    /// The name that the author of the rule gave it.
    #[serde(default)]
    pub rule_name: Option<String>,
    /// The prefix whose sources are counted together; none if the source is counted by itself.
    #[serde(default)]
    pub of: Option<String>,
    /// Reason of the drops, as in `limiter stats`.
    pub reason: String,
    /// Packets that passed; none in a sample.
    pub passed: Option<u64>,
    /// Packets that were dropped: all of the buckets that there are, or those that events reported.
    pub dropped: u64,
    /// Packets that were dropped a second; none without two readings of the same counters.
    #[serde(default)]
    pub dropped_per_second: Option<f64>,
    /// The moment since which it drops, or when it last began to; none where no event reported it.
    #[serde(default)]
    #[schema(value_type = Option<words::Moment>)]
    pub since: Option<String>,
    /// Keys with a bucket of their own, such as ports; none in a sample.
    pub keys: Option<u64>,
    /// True if the program has counted them; false of a sample, which is a part.
    pub exact: bool,
    /// True if rules before may have a part of it that nothing tells apart: a bucket keeps its
    /// counts when the rules change.
    #[serde(default)]
    pub with_before: bool,
}

impl RuleDrops {
    /// What drops: [`dropper`].
    pub fn title(&self) -> String {
        dropper(self.rule.as_deref(), self.rule_name.as_deref(), &self.reason)
    }

    /// True if the rule of these keys drops packets now.
    pub(crate) fn is(&self, rule: &str) -> bool {
        self.rule.as_deref() == Some(rule) && self.dropped_per_second > Some(0.0)
    }

    /// The remark of a sample, and of what sources share.
    pub fn said(&self) -> String {
        match &self.of {
            _ if !self.exact => "sampled: there may be more".to_owned(),
            Some(of) => format!("of all sources in {}", clean(of)),
            None if self.with_before => "may include rules before".to_owned(),
            None => String::new(),
        }
    }
}

/// Packets that were dropped since the maps were made, by what dropped them. Sources have all of
/// the first of these, as long as they are tracked; of the others, what events reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DroppedBy {
    /// Rules that count each source; none where there are too many of them to add them up for each
    /// answer.
    pub sources: Option<u64>,
    /// Rules and budgets that do not; none for the same reason, and where a budget that rules name
    /// is a class as well.
    pub others: Option<u64>,
    /// The deny list, bans and `martians`, before any rule.
    pub lists: u64,
    /// Rules that are no longer in force.
    #[serde(default)]
    pub removed: u64,
}

/// A source in one direction, in short. Every answer about sources has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SourceRow {
    /// An IPv4 address or an IPv6 /64.
    pub source: String,
    /// `in`, `out`, or `both` of rules that count both together.
    #[serde(default)]
    #[schema(value_type = words::Direction)]
    pub direction: String,
    /// What drops packets of it: the rule, list, ban or budget that drops most of it a second
    /// first; without rates, the one that dropped most in all.
    #[serde(default)]
    pub by: Vec<RuleDrops>,
    /// Packets that passed, by all counters that it has now.
    pub passed: u64,
    /// Packets that were dropped, by whatever rule, list or ban.
    pub dropped: u64,
    /// True if more may have passed: packets that no counter of it has.
    #[serde(default)]
    pub passed_at_least: bool,
    /// True if more was or may have been dropped: by lists, bans and rules that do not count each
    /// source, of which events report a part. Its rate is one of a part then, too.
    #[serde(default)]
    pub dropped_at_least: bool,
    /// Packets that passed a second; none without two readings of the same counters.
    pub passed_per_second: Option<f64>,
    /// Packets that were dropped a second; none likewise.
    pub dropped_per_second: Option<f64>,
    /// The share of the burst that is used now, from 0 to 1; none without such a limit.
    pub utilization: Option<f64>,
    /// The rule on sources that it falls under, if any, whatever drops packets of it.
    pub rule: Option<String>,
    /// The name that the author of the rule gave it.
    #[serde(default)]
    pub rule_name: Option<String>,
    /// The rate of that, or `unlimited`.
    pub limit: Option<String>,
    /// The list that it is on, before any rule.
    pub listed: Option<ListName>,
    /// Whole seconds until its ban ends, rounded up; none if it is not banned.
    pub banned_seconds: Option<u64>,
}

/// Drops in words, where sources do not have all of them.
fn drop_words(DroppedBy { sources, others, lists, removed }: DroppedBy) -> Option<String> {
    if others == Some(0) && lists == 0 {
        return None;
    }
    let parts = [
        (sources, "rules that count each source"),
        (others, "other rules and budgets"),
        (Some(lists), "lists and bans"),
        (Some(removed), "rules that were removed"),
    ];
    let parts = parts.into_iter().enumerate();
    let parts = parts.filter(|(place, (count, _))| *place == 0 || *count != Some(0));
    let words = parts.map(|(_, (count, name))| match count {
        None => format!("by {name}: not added up"),
        Some(count) => format!("{} by {name}", number(count)),
    });
    Some(words.collect::<Vec<_>>().join(", "))
}

/// Commands that report the drops that sources do not have.
const WHERE: &str = "`limiter list`, `limiter events`, `limiter explain --from ADDRESS`";

/// Packets a second, in few digits.
pub fn per_second(rate: Option<f64>) -> String {
    match rate {
        None => "-".to_owned(),
        Some(rate) if rate >= 10.0 || rate == 0.0 => {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "rounded, and not negative"
            )]
            let whole = rate.round() as u64;
            number(whole)
        }
        Some(rate) => format!("{rate:.1}"),
    }
}

/// A number of which there may be more, with a sign for that; at least 0 is no number.
pub fn part(number: String, at_least: bool) -> String {
    match (at_least, number.as_str()) {
        (false, _) => number,
        (true, "0" | "-") => "-".to_owned(),
        (true, _) => format!("≥{number}"),
    }
}

/// A rate with its unit.
pub fn each_second(rate: f64) -> String {
    format!("{}/s", per_second(Some(rate)))
}

/// A share in per cent.
pub fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0))
}

/// State of the source beside its rule.
pub fn state(row: &SourceRow) -> String {
    match (row.listed, row.banned_seconds) {
        (Some(ListName::Deny), _) => "denied".to_owned(),
        (Some(ListName::Allow), _) => "allowed".to_owned(),
        (None, Some(left)) => format!("banned {}", seconds(left)),
        (None, None) => String::new(),
    }
}

/// A source with the direction where that is not the usual one.
pub fn named(source: &str, direction: &str) -> String {
    let source = clean(source);
    match direction {
        "in" | "" => source,
        "both" => format!("{source} in+out"),
        direction => format!("{source} {}", clean(direction)),
    }
}

impl SourceRow {
    /// True if packets of it are dropped now, or were where no rate is known.
    pub fn loses(&self) -> bool {
        self.dropped_per_second.map_or(self.dropped > 0, |rate| rate > 0.0)
    }

    /// True if packets of it are known to be dropped now.
    pub fn loses_now(&self) -> bool {
        self.dropped_per_second > Some(0.0)
    }

    /// The source, with the direction where that is not the usual one.
    pub fn name(&self) -> String {
        named(&self.source, &self.direction)
    }

    /// The name of what drops most of it, and the number of the others: of those that drop packets
    /// of it now, where any does.
    pub fn by_text(&self) -> String {
        let Some((one, more)) = self.by.split_first() else { return "-".to_owned() };
        let now = |by: &&RuleDrops| !self.loses_now() || by.dropped_per_second > Some(0.0);
        match more.iter().filter(now).count() {
            0 => one.title(),
            more => format!("{} +{more}", one.title()),
        }
    }

    /// The reason of what drops most of it.
    pub fn reason(&self) -> String {
        self.by.first().map_or_else(|| "-".to_owned(), |by| clean(&by.reason))
    }

    /// The time of day since which that drops; the day and the minute of another day.
    pub fn since(&self) -> String {
        let Some(since) = self.by.first().and_then(|by| by.since.as_deref()) else {
            return "-".to_owned();
        };
        let short = Zone::of_this_process().short(since);
        match short.split_once(' ') {
            Some((clock, age)) if age.ends_with(" ago") => clean(clock),
            _ => clean(short.get(5..16).unwrap_or(&short)),
        }
    }

    /// The drops now, in words: `dropped: 65/s by game (over-limit); passed 50/s`.
    pub fn in_words(&self) -> String {
        let rate = |rate: Option<f64>, dropped: u64, exact: bool| match rate {
            Some(rate) => part(each_second(rate), !exact),
            None => part(format!("{} in all", number(dropped)), !exact),
        };
        let now = self.dropped_per_second.is_some_and(|rate| rate > 0.0);
        let each = self.by.iter().filter(|by| !now || by.dropped_per_second > Some(0.0));
        let each = each.map(|by| {
            let many = rate(by.dropped_per_second, by.dropped, by.exact);
            format!("{many} by {} ({})", by.title(), clean(&by.reason))
        });
        let way = match self.direction.as_str() {
            "in" | "" => "",
            "out" => " of what goes out",
            _ => " of what comes in and goes out",
        };
        let passed = part(per_second(self.passed_per_second), self.passed_at_least);
        let passed = if passed == "-" { String::new() } else { format!("; passed {passed}/s") };
        format!("dropped{way}: {}{passed}", each.collect::<Vec<_>>().join(", "))
    }
}

/// The rows as a table.
fn rows(text: &mut String, sources: &[SourceRow]) {
    let mut table = table(&[
        "SOURCE",
        ">DROPPED/S",
        "BY",
        "REASON",
        ">PASSED/S",
        "SINCE",
        ">DROPPED",
        ">PASSED",
        ">USED",
        "STATE",
    ]);
    for row in sources {
        table.add_row([
            row.name(),
            part(per_second(row.dropped_per_second), row.dropped_at_least),
            row.by_text(),
            row.reason(),
            part(per_second(row.passed_per_second), row.passed_at_least),
            row.since(),
            part(number(row.dropped), row.dropped_at_least),
            part(number(row.passed), row.passed_at_least),
            percent(row.utilization),
            state(row),
        ]);
    }
    push(text, &table);
}

/// What is not among the rows, under an order by drops: the sources of which nothing is dropped,
/// and the drops by lists and bans, which are counted as one sum.
pub fn folded(by: By, rows: usize, lose_nothing: u64, lists: u64) -> Option<String> {
    if !matches!(by, By::Dropped | By::DropRate) {
        return None;
    }
    let and = if rows > 0 { "and " } else { "" };
    let quiet = (lose_nothing > 0)
        .then(|| format!("{and}{} of which no drop was seen", number(lose_nothing)));
    let lists = (lists > 0).then(|| {
        format!(
            "lists and bans dropped {} in all, of which the rows have what events reported",
            number(lists)
        )
    });
    let parts: Vec<String> = quiet.into_iter().chain(lists).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

impl Render for SourceList {
    fn render(&self, text: &mut String) {
        if let Some(headline) = &self.headline {
            line(text, format_args!("{headline}"));
            text.push('\n');
        }
        if !self.sources.is_empty() {
            rows(text, &self.sources);
        } else if matches!(self.by, By::Dropped | By::DropRate) {
            text.push_str("no drop of any source was seen; try: limiter set ADDRESS 5/min\n");
        } else {
            text.push_str("no such source has a counter, and events reported no drops\n");
        }
        if let Some(folded) = folded(self.by, self.sources.len(), self.lose_nothing, 0) {
            text.push_str(&folded);
            text.push('\n');
        }
        let (v4, v6) = (number(self.tracked_v4), number(self.tracked_v6));
        let _: std::fmt::Result = write!(text, "{v4} IPv4 and {v6} IPv6 sources are tracked");
        if self.within < self.tracked_v4.saturating_add(self.tracked_v6) {
            let _: std::fmt::Result = write!(text, ", {} of them asked for", number(self.within));
        }
        text.push('\n');
        if let Some(words) = drop_words(self.dropped_by) {
            let _: std::fmt::Result = writeln!(
                text,
                "dropped in all: {words}. Only the first is counted by source; of the rest, rows \
                 have what events reported. See {WHERE}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_few_digits() {
        let shown = [None, Some(0.0), Some(0.26), Some(9.96), Some(12.5), Some(1234.5)];
        assert_eq!(shown.map(per_second), ["-", "0", "0.3", "10.0", "13", "1,235"]);
    }
}
