//! The documents of rules and their limits.

use serde::{Deserialize, Serialize};

use super::Counts;

/// Where a rule comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The rule file.
    File,
    /// `limiter set`.
    Cli,
    /// A management prefix.
    Management,
}

impl Origin {
    /// Its name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Cli => "cli",
            Self::Management => "management",
        }
    }
}

/// `GET /v1/limits`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// The rule set in force.
    pub generation: u64,
    /// Its rules.
    pub limits: Vec<LimitEntry>,
    /// Its budgets.
    #[serde(default)]
    pub budgets: Vec<LimitEntry>,
    /// What of the rules is not in force, and why.
    pub warnings: Vec<String>,
}

/// One rule in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitEntry {
    /// For whom: an address, a prefix, `every source`, or keys as in `destination_port=22
    /// remote_address`. A budget's name.
    pub source: String,
    /// Its name in the rule file.
    pub name: Option<String>,
    /// Where it comes from.
    pub origin: Origin,
    /// The rate; of the first limit, if there are several. Or `unlimited`, or `budget NAME`.
    pub limit: String,
    /// Packets or bytes at once; none without a token bucket.
    pub burst: Option<u64>,
    /// `packets`, `bytes`, `syns` or `flows`; none without a limit.
    pub count: Option<String>,
    /// The rate that the program really holds, per second; none without a limit.
    pub effective_per_second: Option<f64>,
    /// Whether it only counts: `shadow_mode`.
    pub shadow: bool,
    /// What it let pass.
    pub passed: Counts,
    /// What it dropped.
    pub dropped: Counts,
    /// Of what passed: what it would have dropped, were it not in shadow mode.
    pub shadowed: Counts,
    /// Of what passed: what was over a limit, and was marked or went another way.
    #[serde(default)]
    pub marked: Counts,
    /// All limits.
    #[serde(default)]
    pub limits: Vec<LimitView>,
    /// What happens over them; none without limits of its own.
    #[serde(default)]
    pub action: Option<String>,
    /// The budget that it is charged to, if any: its counts are there.
    #[serde(default)]
    pub budget: Option<String>,
    /// The value of its `generic_key`, if any.
    #[serde(default)]
    pub label: Option<String>,
}

/// One limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitView {
    /// All of it in one line, as in `10 syns/min burst 5`.
    pub text: String,
    /// `token_bucket`, or another algorithm.
    pub algorithm: String,
    /// Its rate, as in `10 syns/min`, after the algorithm if it is not the token bucket.
    pub rate: String,
    /// `packets`, `bytes`, `syns` or `flows`.
    pub count: String,
    /// How many at once; none but for token buckets.
    pub burst: Option<u64>,
    /// The rate that the program really holds, per second.
    pub effective_per_second: Option<f64>,
    /// What makes it soft.
    pub upper: Option<UpperView>,
}

/// The limit above a soft one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpperView {
    /// `ceiling`, `peak` or `excess`.
    pub kind: String,
    /// Its rate.
    pub rate: String,
    /// How many at once.
    pub burst: u64,
    /// The rate that the program really holds, per second.
    pub effective_per_second: Option<f64>,
}
