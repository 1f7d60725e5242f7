//! The documents about the sources that are tracked: who stands out among them.

use serde::{Deserialize, Serialize};

use super::lists::ListName;

/// Sources in one answer, unless it is said otherwise.
pub const SOURCES: u32 = 20;

/// Sources in one answer at most.
pub const MOST_SOURCES: u32 = 1000;

/// By what sources stand out.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum,
)]
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
    Nearness,
}

impl By {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::DropRate, Self::Dropped, Self::Rate, Self::Passed, Self::Nearness];

    /// Its name in requests and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dropped => "dropped",
            Self::Passed => "passed",
            Self::Rate => "rate",
            Self::DropRate => "drop-rate",
            Self::Nearness => "nearness",
        }
    }

    /// Whether it takes two readings.
    pub const fn is_rate(self) -> bool {
        matches!(self, Self::Rate | Self::DropRate)
    }
}

/// The query of `GET /v1/sources`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskSources {
    /// What the first of them has most of.
    #[serde(default)]
    pub by: By,
    /// How many; [`SOURCES`] when left out.
    #[serde(default)]
    pub limit: Option<u32>,
    /// Only sources in it.
    #[serde(default)]
    pub prefix: Option<String>,
}

/// The query of `GET /v1/top`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskTop {
    /// What the first of them has most of.
    #[serde(default)]
    pub by: By,
    /// How many; [`SOURCES`] when left out.
    #[serde(default)]
    pub limit: Option<u32>,
    /// Only sources in it.
    #[serde(default)]
    pub prefix: Option<String>,
    /// An address whose source is told of in any case.
    #[serde(default)]
    pub watch: Option<String>,
}

/// `GET /v1/sources`: those that stand out, of all that are tracked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceList {
    /// By what.
    pub by: By,
    /// IPv4 sources that were read.
    pub tracked_v4: u64,
    /// IPv6 sources that were read.
    pub tracked_v6: u64,
    /// How many of both are in the prefix that was asked for.
    pub within: u64,
    /// All drops since the maps were made, by what dropped them. `dropped` of a source is what the
    /// rules on sources dropped of it.
    #[serde(default)]
    pub dropped_by: DroppedBy,
    /// The first of them.
    pub sources: Vec<SourceRow>,
}

/// Packets that were dropped since the maps were made, by what dropped them. In `top` and
/// `sources`, sources have only the first of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedBy {
    /// Rules on `remote_address` alone that have limits of their own; none where there are too many
    /// of them to add them up for each answer.
    pub sources: Option<u64>,
    /// Rules on other keys, and budgets; none for the same reason, and where a budget that rules
    /// name is a class as well.
    pub others: Option<u64>,
    /// The deny list, bans and `martians`, before any rule.
    pub lists: u64,
}

/// One source, in short.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceRow {
    /// An IPv4 address or an IPv6 /64.
    pub source: String,
    /// Packets that passed since it is tracked.
    pub passed: u64,
    /// Packets that were dropped since then.
    pub dropped: u64,
    /// Packets that passed a second; none without two readings.
    pub passed_per_second: Option<f64>,
    /// Packets that were dropped a second.
    pub dropped_per_second: Option<f64>,
    /// The share of the burst that is used now, from 0 to 1; none without such a limit.
    pub nearness: Option<f64>,
    /// The rule that it falls under, if any.
    pub rule: Option<String>,
    /// The rate of that, or `unlimited`.
    pub limit: Option<String>,
    /// The list that it is on, before any rule.
    pub listed: Option<ListName>,
    /// Whole seconds until its ban ends, rounded up; none if it is not banned.
    pub banned_seconds: Option<u64>,
}

/// `GET /v1/top`: those that stand out of what was seen so far, while somebody looks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Top {
    /// The time of the numbers, in nanoseconds of the machine's monotonic clock.
    pub clock_ns: u64,
    /// Since when the daemon runs, in seconds.
    pub uptime_seconds: u64,
    /// The rule set in force.
    pub generation: u64,
    /// Whether every packet passes: `limiter off`.
    pub brake: bool,
    /// Packets that went on, since the maps were made.
    pub passed: u64,
    /// Packets that did not.
    pub dropped: u64,
    /// What dropped them.
    #[serde(default)]
    pub dropped_by: DroppedBy,
    /// IPv4 sources that have a bucket.
    pub tracked_v4: u64,
    /// IPv6 sources that have a bucket.
    pub tracked_v6: u64,
    /// How often all sources were gone through since somebody looks, with the share of the round under way.
    pub rounds: f64,
    /// The first of those that stand out.
    pub sources: Vec<SourceRow>,
    /// The source that was asked about, if one was.
    pub watched: Option<SourceRow>,
}
