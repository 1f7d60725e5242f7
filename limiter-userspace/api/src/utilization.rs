//! How near sources come to the limits in force, and whether these fit the traffic.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::sources::percent;
use crate::render::{Render, line, number, push, table, titled};

/// `GET /v1/utilization`: the rules in force that have buckets, those that need a look first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Utilization {
    /// Seconds since the reading of all buckets that this is from began.
    pub read_seconds_ago: u64,
    /// The longest time between two readings of all buckets, in seconds: what a bucket did between
    /// them was not seen, but for its packets. 0 after one reading.
    pub apart_seconds: u64,
    /// Buckets of rules with limits that were read.
    pub buckets: u64,
    /// One bucket in so many is followed, chosen by a secret hash: `sent`, `above_50`, `above_80`,
    /// `lost` and `lost_most` count those that are followed.
    pub one_of: u64,
    /// True if there are more rules with buckets than are looked at.
    pub left_out: bool,
    /// The rules and budgets with buckets.
    pub rules: Vec<RuleUtilization>,
}

/// A rule in force: how near its sources or keys come to its limits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RuleUtilization {
    /// Sources or keys that the rule is for; `budget` and the name of a budget.
    pub rule: String,
    /// The name that the author of the rule gave it.
    pub rule_name: Option<String>,
    /// The rate of its first limit; empty of a budget.
    pub limit: String,
    /// True if it only counts.
    pub shadow: bool,
    /// Owners of its buckets.
    pub of: Of,
    /// Buckets that it has now.
    pub tracked: u64,
    /// Of these, how many have used 0 to 10 % of the limit now, 10 to 20 %, and so on: ten numbers.
    /// Of several limits of a rule the nearest counts.
    pub tenths: Vec<u64>,
    /// Seconds that the following look back: the rule has had its limits for longer, or the window
    /// of 30 to 60 minutes is over.
    pub window_seconds: u64,
    /// Sources or keys that are followed and sent anything.
    pub sent: u64,
    /// Of these, how many were seen above half of their limit, or lost a packet.
    pub above_50: u64,
    /// Of these, how many were seen above 80 %, or lost a packet.
    pub above_80: u64,
    /// Of these, how many lost a packet.
    pub lost: u64,
    /// Of these, how many lost at least half of their packets.
    pub lost_most: u64,
    /// Bound of the used share of the limit, from 0 to 1, that none of them can have been above,
    /// whatever went on between two readings; none where that is not known.
    pub at_most: Option<f64>,
    /// Packets that the rule let pass.
    pub passed: u64,
    /// Packets that it dropped, those of sources without a bucket included.
    pub dropped: u64,
    /// Of what passed: what it would drop, were it not in shadow mode.
    pub shadowed: u64,
    /// Of what passed: what was over a limit, and was marked or went another way.
    pub marked: u64,
    /// The share of packets that it has dropped since its counters began, from 0 to 1: also with
    /// other limits than now; none without packets.
    pub dropped_share: Option<f64>,
    /// The answer: does the limit fit the traffic?
    pub answer: Fit,
    /// The numbers that it is from, in a sentence.
    pub evidence: String,
}

/// Owners of buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Of {
    /// Each source has one.
    #[default]
    Sources,
    /// Each key of a table has one: a source with a port, a prefix, or a port alone.
    Keys,
    /// A budget has one, for all that are charged to it.
    Budget,
}

impl Of {
    /// The name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sources => "sources",
            Self::Keys => "keys",
            Self::Budget => "budget",
        }
    }
}

/// Answer to the question if a limit fits the traffic, as far as counters show.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Fit {
    /// Many sources lose a small part of their packets.
    TooTight,
    /// No source can have come above half of the limit.
    Loose,
    /// Few sources lose packets, or some come near the limit.
    Fitting,
    /// The numbers do not show it.
    #[default]
    NotKnownYet,
}

impl Fit {
    /// The answer in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooTight => "too tight",
            Self::Loose => "loose",
            Self::Fitting => "fitting",
            Self::NotKnownYet => "not known yet",
        }
    }
}

impl RuleUtilization {
    /// The rule by its name, and whom it is for.
    pub fn title(&self) -> String {
        titled(Some(&self.rule), self.rule_name.as_deref())
    }
}

impl Render for Utilization {
    fn render(&self, text: &mut String) {
        if self.rules.is_empty() {
            text.push_str(
                "no rule with a limit has a bucket now: nobody has sent anything lately\n",
            );
            return;
        }
        let mut rows = table(&[
            "RULE",
            "LIMIT",
            ">TRACKED",
            ">SENT",
            ">ABOVE 50 %",
            ">80 %",
            ">LOST",
            ">MOST OF IT",
            ">DROPPED",
            "ANSWER",
        ]);
        for rule in &self.rules {
            rows.add_row([
                rule.title(),
                format!("{}{}", rule.limit, if rule.shadow { ", shadow" } else { "" }),
                number(rule.tracked),
                number(rule.sent),
                number(rule.above_50),
                number(rule.above_80),
                number(rule.lost),
                number(rule.lost_most),
                percent(rule.dropped_share),
                rule.answer.name().to_owned(),
            ]);
        }
        push(text, &rows);
        text.push('\n');
        for rule in &self.rules {
            let (title, answer) = (rule.title(), rule.answer.name());
            line(text, format_args!("{title}: {answer}: {}", rule.evidence));
        }
        text.push('\n');
        let mut how = format!("{} buckets, read ", number(self.buckets));
        // Writing to a string cannot fail.
        let _: std::fmt::Result = match self.read_seconds_ago {
            0 => write!(how, "just now"),
            ago => write!(how, "{} s ago", number(ago)),
        };
        if self.apart_seconds > 0 {
            let _: std::fmt::Result = write!(how, ", up to {} s apart", number(self.apart_seconds));
        }
        if self.one_of > 1 {
            let _: std::fmt::Result = write!(
                how,
                "; one in {} is followed: SENT to MOST OF IT are of these",
                number(self.one_of)
            );
        }
        if self.left_out {
            how.push_str("; there are more rules than are looked at");
        }
        line(text, format_args!("{how}"));
    }
}
