//! Sources that stand out of what was seen so far, while somebody looks.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::sources::{By, DroppedBy, SourceRow};
use crate::words;

/// The query of `GET /v1/top`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AskTop {
    /// Measure that ranks the sources: the first has the most of it.
    #[serde(default)]
    pub by: By,
    /// Number of sources; 20 when left out.
    #[serde(default)]
    #[param(value_type = Option<words::SourceCount>)]
    pub limit: Option<u32>,
    /// Prefix of the sources; all when left out.
    #[serde(default)]
    #[param(value_type = Option<words::Within>)]
    pub prefix: Option<String>,
    /// An address whose source is reported in any case.
    #[serde(default)]
    #[param(value_type = Option<words::Address>)]
    pub watch: Option<String>,
}

/// `GET /v1/top`: those that stand out of what was seen so far, while somebody looks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Top {
    /// The time of the numbers, in nanoseconds of the machine's monotonic clock.
    pub clock_ns: u64,
    /// The beginning of this run of the daemon, by the same clock: counters of two answers with one
    /// beginning can be compared.
    #[serde(default)]
    pub began_ns: u64,
    /// Since when the daemon runs, in seconds.
    pub uptime_seconds: u64,
    /// The rule set in force.
    pub generation: u64,
    /// True if limiter lets every packet pass: `limiter off`.
    pub bypass: bool,
    /// Packets that went on, since the maps were made.
    pub passed: u64,
    /// Packets that did not.
    pub dropped: u64,
    /// Packets that were dropped, by what dropped them.
    #[serde(default)]
    pub dropped_by: DroppedBy,
    /// IPv4 sources that have a bucket.
    pub tracked_v4: u64,
    /// IPv6 sources that have a bucket.
    pub tracked_v6: u64,
    /// How often all sources were gone through since somebody looks, with the share of the round
    /// under way.
    pub rounds: f64,
    /// The first of those that stand out.
    pub sources: Vec<SourceRow>,
    /// Sources of which nothing was dropped, as far as they were read: under an order by drops they
    /// are not among the rows.
    #[serde(default)]
    pub lose_nothing: u64,
    /// What is dropped now, in a sentence; none at the first look.
    #[serde(default)]
    pub headline: Option<String>,
    /// The source that was asked about, if one was, in each direction in which it is counted.
    #[serde(default)]
    pub watched: Vec<SourceRow>,
}
