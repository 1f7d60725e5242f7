//! State of a node for users and monitoring, and its notices to the daemon.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::change::Change;
use super::keeping::Keeping;
use super::settings::NodeSettings;

/// News of the node for the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The number of nodes changed: that of live nodes, or the minimum. Rules must be compiled with
    /// it.
    Nodes(u64),
    /// A change by another node, to be applied here and not published again.
    Change(Change),
    /// Changes by other nodes that are rejected.
    Refused {
        /// Number of rejected changes.
        count: u64,
        /// The latest rejected changes.
        latest: Vec<RefusedChange>,
    },
    /// Changes by other nodes that will never come, because the store has dropped them.
    Missed {
        /// Their number; `None` if the store lost its state.
        changes: Option<u64>,
    },
    /// There is no contact to the store.
    Lost {
        /// The latest error.
        error: String,
    },
    /// There is contact to the store again.
    Regained {
        /// Time without contact.
        after: Duration,
    },
    /// A server of a cluster answers no calls for its slots.
    ServerLost {
        /// Address of the server.
        address: String,
        /// Number of its hash slots.
        slots: u16,
        /// The latest error.
        error: String,
    },
    /// A lost server answers again, or other servers have its slots now.
    ServerRegained {
        /// Address of the server.
        address: String,
    },
    /// How a server keeps keys has changed, or is known for the first time.
    Keeping(ServerStatus),
    /// The store granted more of a limit than the limit allows this node alone. The excess was not
    /// taken.
    Beyond {
        /// Name of the limit, as in rule files.
        limit: String,
        /// Units that were not taken since the last notice.
        units: u64,
    },
    /// The store's key of a limit was made by something else. That limit works as if without
    /// contact.
    Foreign {
        /// The key, and the remedy.
        error: String,
    },
    /// Another live daemon has the name of this node.
    SameName {
        /// Name that two nodes have.
        name: String,
    },
    /// Other nodes have a different rule set.
    RuleSetsDiffer {
        /// Their names; empty if all have the same rule set again.
        nodes: Vec<String>,
    },
}

/// A rejected change by another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedChange {
    /// The change, such as `deny 192.0.2.0/24`.
    pub change: String,
    /// Name of the node that made it, if the store knows it.
    pub node: Option<String>,
    /// The reason.
    pub why: String,
}

/// Contact to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contact {
    /// There was no contact yet.
    Starting,
    /// Calls have been answered since this time.
    Connected(SystemTime),
    /// No call has been answered since this time.
    CutOff(SystemTime),
}

/// State of a node at one moment, updated each second and when the contact changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Name of this node.
    pub name: String,
    /// Contact to the store.
    pub contact: Contact,
    /// Time and text of the latest error of a call.
    pub last_error: Option<(SystemTime, String)>,
    /// Number of calls, including failed ones.
    pub calls: u64,
    /// Number of failed calls.
    pub failed: u64,
    /// Duration of the latest answered call.
    pub round_trip: Option<Duration>,
    /// Longest duration of an answered call in the last one or two minutes.
    pub worst_round_trip: Option<Duration>,
    /// Microseconds by which the store's clock is ahead of this machine's.
    pub clock_ahead: Option<i64>,
    /// Servers of the store, ordered by address.
    pub servers: Vec<ServerStatus>,
    /// Shared limits, ordered by name.
    pub leases: Vec<LeaseStatus>,
    /// Number of leases that decide nothing, because there is no answer.
    pub without_contact: usize,
    /// Live nodes, ordered by name.
    pub nodes: Vec<NodeStatus>,
    /// Number of nodes among which shares are divided.
    pub count: u64,
    /// Changes of this node that wait for the store.
    pub waiting_changes: usize,
    /// Time of the newest accepted change by another node, by that node's clock, in microseconds
    /// since 1970; 0 without a key of the nodes.
    pub newest_change: u64,
    /// Keys of rules that have leases on this node.
    pub keys: usize,
    /// Keys that found no free leases since the node started.
    pub keys_refused: u64,
    /// Units that were granted beyond what the limits allow this node alone, and so not taken,
    /// since the node started.
    pub beyond: u64,
    /// The latest case that rounding and clock differences do not explain.
    pub latest_beyond: Option<Beyond>,
    /// True if changes by other nodes count only with a signature.
    pub signed: bool,
    /// Notices that were dropped because the channel was full.
    pub dropped_notices: u64,
}

/// A limit of which the store granted too much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beyond {
    /// Name of the limit, as in rule files.
    pub limit: Arc<str>,
    /// Time of the grant.
    pub at: SystemTime,
}

/// A server of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStatus {
    /// Host and port, or the path of its socket.
    pub address: String,
    /// True if there is a connection to it. A server that is never asked has none.
    pub connected: bool,
    /// Number of its cluster slots; `None` outside a cluster.
    pub slots: Option<u16>,
    /// The error that ended the last connection; `None` once a call was answered after that.
    pub error: Option<String>,
    /// How it keeps keys; `None` before the first check.
    pub keeping: Option<Keeping>,
}

/// A current lease of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseStatus {
    /// Name of the limit.
    pub name: Arc<str>,
    /// Index in `LEASES`.
    pub lease: u32,
    /// Units granted to this daemon.
    pub granted: u64,
    /// Units granted beyond this node's own account, and not taken.
    pub beyond: u64,
    /// Units that packets used since this daemon has had the lease.
    pub used: u64,
    /// Units that packets were denied since this daemon has had the lease.
    pub denied: u64,
    /// Units available for use.
    pub held: u64,
    /// True if the lease decides.
    pub in_contact: bool,
}

/// A node of the cluster, as this node knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// Name of the node.
    pub name: String,
    /// True if it is this node.
    pub here: bool,
    /// Digest of its rule set.
    pub digest: u64,
    /// Version of its program.
    pub version: String,
    /// Time since its last report, when the store was last asked.
    pub silent: Duration,
}

impl Status {
    /// State of a node that has not started.
    pub(super) fn new(settings: &NodeSettings) -> Self {
        Self {
            name: settings.name.clone(),
            contact: Contact::Starting,
            last_error: None,
            calls: 0,
            failed: 0,
            round_trip: None,
            worst_round_trip: None,
            clock_ahead: None,
            servers: Vec::new(),
            leases: Vec::new(),
            without_contact: 0,
            nodes: Vec::new(),
            count: settings.nodes.into(),
            waiting_changes: 0,
            newest_change: settings.newest,
            signed: settings.keys.is_some(),
            beyond: 0,
            latest_beyond: None,
            dropped_notices: 0,
            keys: 0,
            keys_refused: 0,
        }
    }
}
