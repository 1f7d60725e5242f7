//! The daemon, as this process knows it: it bans sources and shows what became of requests.

pub(crate) mod bans;
pub(crate) mod report;

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use limiter_rules::model::Ban;

/// The daemon, asked over its socket. Calls may block for a while.
pub trait Daemon: fmt::Debug + Send + Sync {
    /// Asks for bans: an answer for each, in their order.
    ///
    /// # Errors
    ///
    /// Why none of them was made, with the remedy.
    fn ban(&self, asked: &[AskedBan]) -> Result<Vec<BanAnswer>, String>;

    /// Tells it what became of requests so far.
    ///
    /// # Errors
    ///
    /// Why it did not take that.
    fn report(&self, report: &Report) -> Result<(), NotReported>;
}

/// Why the daemon did not take a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotReported {
    /// There is no daemon, or it does not answer now.
    Away,
    /// It takes no reports of this process: the reason, with the remedy.
    Refused(String),
}

/// A ban that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedBan {
    /// The source; of IPv6 all of its /64 is meant.
    pub source: IpAddr,
    /// The domain of the rule.
    pub domain: Box<str>,
    /// The keys and values of the rule, in one line.
    pub rule: Box<str>,
    /// How long it is to be. The strikes have been counted.
    pub terms: Ban,
}

/// What became of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BanAnswer {
    /// The source is banned by it.
    Made,
    /// It was banned already.
    InForce,
    /// The rate of new bans was used up.
    OverBudget,
    /// A guard of the daemon refused it.
    Refused(String),
}

/// What became of descriptors of requests at a rule, since the rule came into force in this
/// process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Within the limits, and charged.
    pub within: u64,
    /// Over a soft limit, and within its ceiling: passed.
    pub over_soft: u64,
    /// Over a limit: refused.
    pub over: u64,
    /// Over a limit, and kept in a queue: it goes later.
    pub queued: u64,
    /// Over a limit in shadow mode: passed.
    pub shadow: u64,
    /// Passed, for nothing limits them.
    pub unlimited: u64,
    /// Within the limits, but refused for another descriptor: not charged.
    pub not_charged: u64,
    /// Without a bucket, and passed.
    pub full_passed: u64,
    /// Without a bucket, and refused.
    pub full_refused: u64,
    /// Without a bucket of their own, charged to the shared one: counted besides.
    pub full_shared: u64,
}

/// A rule in a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleReport {
    /// Its domain.
    pub domain: Box<str>,
    /// Its keys and values, in one line.
    pub rule: Box<str>,
    /// The name that its author gave it.
    pub name: Option<Box<str>>,
    /// What became of its descriptors.
    pub counts: RequestCounts,
}

/// What became of requests of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// When reports began, by the clock of the wall.
    pub began: SystemTime,
    /// Time from then to this one, by a clock that does not jump.
    pub at: Duration,
    /// Addresses that requests come to.
    pub listen: Vec<String>,
    /// Keys that have a bucket.
    pub keys: usize,
    /// Keys that there is room for.
    pub max_keys: usize,
    /// Rules with the most over their limits, at most [`crate::MOST_REPORTED`].
    pub rules: Vec<RuleReport>,
    /// How many more rules there are, and what became of their descriptors.
    pub others: (usize, RequestCounts),
    /// What is wrong with the process.
    pub warnings: Vec<String>,
    /// What is right if it is meant.
    pub notes: Vec<String>,
    /// The domain of each rule file in force, and a digest of what is written in it.
    pub files: Vec<(String, u64)>,
    /// True if it is the last one: the process ends.
    pub ends: bool,
}
