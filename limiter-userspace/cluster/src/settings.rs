//! Input of a node: settings at its start, and the rules in force.

use std::time::Duration;

use limiter_sharing::SharedSet;

use super::sign::Keys;

/// Settings of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSettings {
    /// Name, unlike that of any other node: 1 to 64 letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Nodes that there are at least, 1 to 65,535: shares are made of no fewer.
    pub nodes: u16,
    /// Shards that keys are spread over, at least 1; the same on all nodes.
    pub shards: u16,
    /// Longest time for a call.
    pub timeout: Duration,
    /// Keys that changes of other nodes are signed with; `None`: what the store reports is
    /// believed, and guarded.
    pub keys: Option<Keys>,
    /// The newest change that daemons of this node took over before, by the clock of the node that
    /// made it, in microseconds since 1970: with keys, none from before is taken over again.
    pub newest: u64,
}

/// Rules in force, as far as nodes share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    pub(super) shared: SharedSet,
    pub(super) digest: u64,
}
