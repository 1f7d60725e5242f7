//! The documents of the control interface.

pub mod bans;
pub mod check;
pub mod events;
pub mod explain;
mod limits;
pub mod lists;
pub mod rules;
pub mod sources;

pub use limits::{LimitEntry, LimitView, Limits, Origin, UpperView};

use limiter_common::wire::{RuleCounters, Tally};
use serde::{Deserialize, Serialize};

/// Packets and bytes (frames from the Ethernet header, without the checksum).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Frames.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl From<Tally> for Counts {
    fn from(Tally { packets, bytes }: Tally) -> Self {
        Self { packets, bytes }
    }
}

/// `GET /v1/status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The daemon's version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// The rule set in force.
    pub generation: u64,
    /// Rules in force.
    pub rules: usize,
    /// Whether every packet passes: `limiter off`.
    pub brake: bool,
    /// What is under limits.
    pub interfaces: Vec<Interface>,
    /// How many sources can be tracked.
    pub sources: Sources,
    /// The rule files and directories, as the daemon was given them.
    pub rules_files: Vec<String>,
    /// The directory of its pinned maps and links; none of a daemon that does not say it.
    #[serde(default)]
    pub pin_dir: Option<String>,
    /// Rules that came from the command line.
    pub edits: usize,
    /// Prefixes that are never limited.
    pub management: Vec<String>,
    /// What of the rules is not in force, and why; and while most packets have no IP header, that.
    pub warnings: Vec<String>,
    /// Rules and budgets that let packets pass over their soft limits now.
    pub over_soft_limit: Vec<String>,
    /// Tables in which packets find no room now: `IPv4 sources`, `IPv6 sources`, `keys of tables`.
    pub no_room_for: Vec<String>,
    /// How the last reload went; the start counts as one.
    pub last_reload: Reload,
    /// Whether the rules of `limiter apply` take the place of the rule files.
    #[serde(default)]
    pub applied: bool,
    /// How many there were since the start.
    #[serde(default)]
    pub reloads: Reloads,
    /// How the rule files are watched; none for not at all.
    #[serde(default)]
    pub watch: Option<Watching>,
    /// The rule set on trial, if one is.
    #[serde(default)]
    pub trial: Option<rules::Trial>,
    /// How the last trial ended, if there was one.
    #[serde(default)]
    pub last_trial: Option<rules::TrialEnd>,
}

/// How many reloads there were, by request, signal or because a file changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloads {
    /// That put a rule set in force.
    pub ok: u64,
    /// That were refused.
    pub failed: u64,
}

/// How the rule files are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watching {
    /// How often they are read, whether the kernel tells of a change or not.
    pub every_seconds: u64,
}

/// An interface under limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name now.
    pub name: String,
    /// `native` or `generic`.
    pub mode: String,
    /// Its index, in its network namespace; 0 while there is no such interface.
    pub ifindex: u32,
    /// The kernel's id of the program.
    pub program_id: u32,
    /// Whether the daemon found its link in place and kept it.
    pub adopted: bool,
    /// Whether the program is on it now: not while the interface is gone.
    #[serde(default = "attached")]
    pub attached: bool,
    /// More of that.
    #[serde(default)]
    pub state: InterfaceState,
    /// The name that `--iface` has for it, if it was renamed since.
    #[serde(default)]
    pub was: Option<String>,
}

/// State of an interface under limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InterfaceState {
    /// The program is on it. Also of a daemon that does not say it.
    #[default]
    Attached,
    /// The program is on it, in another network namespace.
    Elsewhere,
    /// It is not in this network namespace, and whether it is limited in another one cannot be
    /// seen.
    Unseen,
    /// The program is not on it.
    Detached,
    /// There is no such interface.
    Gone,
}

/// Of a daemon that does not say it.
const fn attached() -> bool {
    true
}

/// Capacity for sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// IPv4 addresses.
    pub max_v4: u32,
    /// IPv6 /64s.
    pub max_v6: u32,
}

/// How a reload went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reload {
    /// Whether the rule file is in force.
    pub ok: bool,
    /// Why not; the rules before it are still in force.
    pub error: Option<String>,
}

/// `PUT /v1/limits`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetLimit {
    /// An address or a prefix.
    pub source: String,
    /// As on the command line: `100/s`, `10mbit/s`, `unlimited`.
    pub rate: String,
    /// Packets or bytes at once; one unit of time's worth when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// Only count what is over the limit, and let it pass.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shadow: bool,
    /// Tell the sender of what is dropped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reject: bool,
    /// Whether it may limit whoever asks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// The SSH session of whoever asks, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<rules::Session>,
}

/// The query of `DELETE /v1/limits`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnsetLimit {
    /// An address or a prefix.
    pub source: String,
    /// Whether it may limit whoever asks.
    #[serde(default)]
    pub force: bool,
    /// The client's address of the SSH session of whoever asks, if it is one.
    #[serde(default)]
    pub peer: Option<std::net::IpAddr>,
    /// The port that its server listens at.
    #[serde(default)]
    pub port: Option<u16>,
}

/// The answer to a change of the rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// The rule set now in force.
    pub generation: u64,
    /// Its rules.
    pub rules: usize,
    /// What this change brought that may not do what its author thinks, and why; `GET /v1/status`
    /// has all of it.
    pub warnings: Vec<String>,
}

/// `GET /v1/stats`. `seen` is always the sum of `passed` and `dropped`, and of all reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// All packets that reached the program.
    pub seen: Counts,
    /// Those that went on.
    pub passed: Counts,
    /// Those that did not.
    pub dropped: Counts,
    /// By reason.
    pub reasons: Vec<ReasonCounts>,
    /// By rule in force.
    pub rules: Vec<RuleCounts>,
    /// By budget in force.
    #[serde(default)]
    pub budgets: Vec<RuleCounts>,
    /// Of all rules that were removed.
    pub removed: Outcomes,
}

/// Packets with one verdict for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasonCounts {
    /// The reason's name.
    pub reason: String,
    /// `pass` or `drop`.
    pub verdict: String,
    /// Frames.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What one rule did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleCounts {
    /// For whom the rule is.
    pub rule: String,
    /// What it let pass.
    pub passed: Counts,
    /// What it dropped.
    pub dropped: Counts,
    /// Of what passed: what it would have dropped, were it not in shadow mode.
    pub shadowed: Counts,
    /// Of what passed: what was over a limit, and was marked or went another way.
    #[serde(default)]
    pub marked: Counts,
}

/// What rules did together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcomes {
    /// What went on.
    pub passed: Counts,
    /// What did not.
    pub dropped: Counts,
    /// Of what passed: what would have been dropped, were it not for shadow mode.
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

/// `GET /v1/sources/{address}`: one source, its limit and its bucket now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceView {
    /// The source: an IPv4 address or an IPv6 /64.
    pub source: String,
    /// Whether it has a bucket; without one nothing is used up.
    pub tracked: bool,
    /// The rule that it falls under, if any.
    pub rule: Option<String>,
    /// The rate, or `unlimited`.
    pub limit: Option<String>,
    /// Packets or bytes at once.
    pub burst: Option<u64>,
    /// `packets` or `bytes`.
    pub count: Option<String>,
    /// The rate that the program really holds, per second.
    pub effective_per_second: Option<f64>,
    /// Whether the rule only counts.
    pub shadow: bool,
    /// The list that it is on, before any rule.
    pub listed: Option<lists::ListName>,
    /// Packets of it that passed since it is tracked.
    pub passed: u64,
    /// Packets of it that were dropped since it is tracked.
    pub dropped: u64,
    /// Packets or bytes that would pass at once now; none without a limit.
    pub remaining: Option<u64>,
    /// Nanoseconds until the whole burst is there again.
    pub full_in_ns: u64,
    /// All limits of the rule; `limit`, `burst` and `remaining` are about the first.
    #[serde(default)]
    pub limits: Vec<LimitView>,
    /// What happens over them; none without limits of its own.
    #[serde(default)]
    pub action: Option<String>,
    /// The budget that it is charged to, if any.
    #[serde(default)]
    pub budget: Option<String>,
    /// Whole seconds until its ban ends, rounded up; none if it is not banned.
    #[serde(default)]
    pub banned_seconds: Option<u64>,
    /// Whether no host can have it, and the rules say that such sources are dropped.
    #[serde(default)]
    pub martian: bool,
    /// Rules on other keys, of all packets or of this source's, that may drop packets of it: the
    /// first of them. `passed` and `dropped` do not tell of these.
    #[serde(default)]
    pub other_rules: Vec<String>,
    /// How many of those there are.
    #[serde(default)]
    pub other_rules_in_all: u64,
}

/// `PUT /v1/brake`, and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Brake {
    /// Whether every packet passes.
    pub engaged: bool,
}

/// The answer to `POST /v1/detach`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detached {
    /// Interfaces that are free now.
    pub interfaces: Vec<String>,
}

/// The body of every answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What, where, and the remedy.
    pub error: String,
}

/// Why a request is refused; the HTTP status follows from it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// 400: the request itself is wrong.
    #[error("{0}")]
    Invalid(String),
    /// 403: another user's business.
    #[error("{0}")]
    Forbidden(String),
    /// 404: there is no such thing.
    #[error("{0}")]
    NotFound(String),
    /// 409: not in this state.
    #[error("{0}")]
    Conflict(String),
    /// 500: the daemon or the kernel failed.
    #[error("{0}")]
    Failed(String),
}
