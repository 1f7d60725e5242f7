//! The documents about bans.

use serde::{Deserialize, Serialize};

/// `GET /v1/bans`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bans {
    /// The bans in force.
    pub entries: Vec<BannedSource>,
    /// Sources with strikes or earlier bans that are not banned now.
    pub watched: usize,
}

/// A banned source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BannedSource {
    /// An IPv4 address or an IPv6 /64.
    pub source: String,
    /// Whole seconds until the ban ends, rounded up.
    pub ends_in_seconds: u64,
    /// Bans that are not forgotten, with this one.
    pub bans: u64,
    /// The rule that banned it; none when that is not in force any more.
    pub rule: Option<String>,
}

/// The query of `DELETE /v1/bans`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unban {
    /// An address, or a prefix for all sources in it.
    pub source: String,
}

/// The answer to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unbanned {
    /// Sources that were forgotten: their bans and strikes.
    pub forgotten: usize,
}
