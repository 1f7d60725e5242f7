//! State of a node for people and monitoring, and what it tells the daemon by itself.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::change::Change;
use super::keeping::Keeping;
use super::settings::NodeSettings;

/// News of the node, for the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Another number of nodes: those that live, or the floor. Rules are to be compiled with it.
    Nodes(u64),
    /// Another node's change, to be applied here and not published again.
    Change(Change),
    /// Changes of other nodes that are not taken over.
    Refused {
        /// Changes that were refused.
        count: u64,
        /// The latest changes that were refused.
        latest: Vec<RefusedChange>,
    },
    /// Changes of other nodes that will not come any more: the store has dropped them.
    Missed {
        /// Number of them; `None` if the store lost its state.
        changes: Option<u64>,
    },
    /// There is no contact to the store.
    Lost {
        /// The latest error.
        error: String,
    },
    /// There is contact to the store again.
    Regained {
        /// Time without.
        after: Duration,
    },
    /// A server of a cluster that has slots answers no call for them.
    ServerLost {
        /// Address of the server.
        address: String,
        /// Hash slots that the server has.
        slots: u16,
        /// The latest error.
        error: String,
    },
    /// A server that was lost answers again, or others have its slots now.
    ServerRegained {
        /// Address of the server.
        address: String,
    },
    /// A server of the store keeps keys in another way than was known.
    Keeping(ServerStatus),
    /// The store granted more of a limit than the limit allows this node alone: it was not taken.
    Beyond {
        /// Name of the limit, as in rule files.
        limit: String,
        /// Units that were not taken since the last notice.
        units: u64,
    },
    /// The key of a limit in the store is somebody else's: that limit does without contact.
    Foreign {
        /// The key, and the remedy.
        error: String,
    },
    /// Another daemon that lives has the name of this node.
    SameName {
        /// Name that two nodes have.
        name: String,
    },
    /// Nodes have another rule set than this one.
    RuleSetsDiffer {
        /// Their names; none: all have the same again.
        nodes: Vec<String>,
    },
}

/// A change of another node that is not taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedChange {
    /// The change, as `deny 192.0.2.0/24`.
    pub change: String,
    /// Name of the node that made it, as far as the store says.
    pub node: Option<String>,
    /// The reason.
    pub why: String,
}

/// Contact to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contact {
    /// There was none yet.
    Starting,
    /// Calls are answered, since then.
    Connected(SystemTime),
    /// No call was answered, since then.
    CutOff(SystemTime),
}

/// State of a node at one moment. It is made anew each second, and when the contact changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Name of this node.
    pub name: String,
    /// Contact to the store.
    pub contact: Contact,
    /// The latest error of a call, and when it was.
    pub last_error: Option<(SystemTime, String)>,
    /// Calls that were made, and those of them that failed.
    pub calls: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Time of the latest call that was answered.
    pub round_trip: Option<Duration>,
    /// Longest time of a call that was answered in the last minute or two.
    pub worst_round_trip: Option<Duration>,
    /// Microseconds by which the store's clock is ahead of this machine's.
    pub clock_ahead: Option<i64>,
    /// Servers of the store, in the order of their addresses.
    pub servers: Vec<ServerStatus>,
    /// Shared limits, in the order of their names.
    pub leases: Vec<LeaseStatus>,
    /// Number of leases that decide nothing, for want of an answer.
    pub without_contact: usize,
    /// Nodes that live, in the order of their names.
    pub nodes: Vec<NodeStatus>,
    /// Number of nodes that shares are made of.
    pub count: u64,
    /// Changes of this node that wait for the store.
    pub waiting_changes: usize,
    /// Time of the newest change of another node that was taken over, by the clock of the node that
    /// made it, in microseconds since 1970; 0 without a key of the nodes.
    pub newest_change: u64,
    /// Keys of rules that have leases on this node.
    pub keys: usize,
    /// Keys that found no leases since the node began: all were in use.
    pub keys_refused: u64,
    /// Units that were granted beyond what the limits allow this node alone, and not taken, since
    /// the node began.
    pub beyond: u64,
    /// The latest time at which that was more than roundings and clocks explain.
    pub latest_beyond: Option<Beyond>,
    /// True if changes of other nodes count only with a signature.
    pub signed: bool,
    /// Notices that found no room.
    pub dropped_notices: u64,
}

/// A limit of which the store granted more than it allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beyond {
    /// Name of the limit, as in rule files.
    pub limit: Arc<str>,
    /// When it did.
    pub at: SystemTime,
}

/// A server of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStatus {
    /// Host and port, or the path of its socket.
    pub address: String,
    /// True if there is a connection to it. To one that has nothing to be asked for there is none.
    pub connected: bool,
    /// Slots of the cluster that it has; `None` if it is no cluster's.
    pub slots: Option<u16>,
    /// The error that ended the last connection to it; `None` once a call was answered after that.
    pub error: Option<String>,
    /// How it keeps keys; `None` before it was looked at.
    pub keeping: Option<Keeping>,
}

/// A lease that this node has now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseStatus {
    /// Name of the limit.
    pub name: Arc<str>,
    /// Index in `LEASES`.
    pub lease: u32,
    /// Units that this daemon was granted.
    pub granted: u64,
    /// Units that were granted beyond this node's own account, and not taken.
    pub beyond: u64,
    /// Units that packets used, since the lease was this daemon's.
    pub used: u64,
    /// Units that packets were refused, since the lease was this daemon's.
    pub denied: u64,
    /// Units that are there to be used.
    pub held: u64,
    /// True if the lease decides.
    pub in_contact: bool,
}

/// A node of the cluster, as this one knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// Name of the node.
    pub name: String,
    /// True if it is this one.
    pub here: bool,
    /// Digest of its rule set.
    pub digest: u64,
    /// Version of its program.
    pub version: String,
    /// Time since it was heard of, when the store was asked last.
    pub silent: Duration,
}

impl Status {
    /// State of a node that has not begun.
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
