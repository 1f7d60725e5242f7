//! Input of a node: settings at its start, and the rules in force.

use std::time::Duration;

use limiter_sharing::SharedSet;

use super::sign::Keys;

/// Settings of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSettings {
    /// Name, different from that of every other node: 1 to 64 letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Minimum number of nodes, 1 to 65,535: shares are never divided among fewer.
    pub nodes: u16,
    /// Number of shards over which keys are spread, at least 1; the same on all nodes.
    pub shards: u16,
    /// Longest time for a call.
    pub timeout: Duration,
    /// Keys that sign the changes of nodes; `None` if the store is trusted, and protected.
    pub keys: Option<Keys>,
    /// Time of the newest change that daemons of this node accepted before, by the clock of the
    /// node that made it, in microseconds since 1970. With keys, no change from before is accepted
    /// again.
    pub newest: u64,
}

/// The part of the rules in force that nodes share.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    pub(super) shared: SharedSet,
    pub(super) digest: u64,
}
