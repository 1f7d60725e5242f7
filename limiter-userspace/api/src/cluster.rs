//! The cluster: this node's contact to the others, limits that they share, and who they are.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::render::{Render, line, number, push, seconds, table, warnings};

/// `GET /v1/cluster`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Cluster {
    /// Name of this node.
    pub node: String,
    /// State of the contact to the store.
    pub contact: ContactState,
    /// Whole seconds for which the contact is so.
    pub contact_seconds: u64,
    /// The latest error of a call, if there was one.
    pub last_error: Option<String>,
    /// Calls of the store since the daemon's start.
    pub calls: u64,
    /// Calls that failed.
    pub failed_calls: u64,
    /// Seconds that the latest call took.
    pub round_trip_seconds: Option<f64>,
    /// Longest time in seconds of a call in the last minute or two.
    pub worst_round_trip_seconds: Option<f64>,
    /// Seconds by which the store's clock is ahead of this machine's.
    pub clock_ahead_seconds: Option<f64>,
    /// Number of nodes that shares are made of: those that live, or the least that is configured.
    pub count: u64,
    /// Nodes that live.
    pub nodes: Vec<ClusterNode>,
    /// Servers of the store: the one that is configured, or those of a Redis Cluster that have
    /// slots.
    pub servers: Vec<ClusterServer>,
    /// Limits that nodes share, with this node's leases.
    pub leases: Vec<Lease>,
    /// Sources, and other keys of rules that nodes share, that have leases on this node.
    pub keys: usize,
    /// Keys that found no lease since the daemon's start, because all were in use: they have their
    /// share.
    pub keys_refused: u64,
    /// Changes of bans and lists that wait to be reported to the other nodes.
    pub waiting_changes: usize,
    /// True if changes of other nodes count only with the signature of a key of the nodes.
    pub signed: bool,
    /// Changes of bans and lists by other nodes that were not taken over since the daemon's start.
    pub refused_changes: u64,
    /// The latest of them, the newest first.
    pub latest_refused: Vec<RefusedChange>,
    /// Units that the store granted beyond what the limits allow this node alone, and that were not
    /// taken, since the daemon's start.
    pub granted_beyond: u64,
    /// Warnings: no contact, a name that is taken, other rules elsewhere.
    pub warnings: Vec<String>,
}

/// State of the contact to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ContactState {
    /// There was none yet.
    Starting,
    /// Calls are answered.
    Connected,
    /// No call is answered.
    CutOff,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterNode {
    /// Name of the node.
    pub name: String,
    /// True if it is the one that answers.
    pub here: bool,
    /// Digest of its rule files.
    pub rules: String,
    /// Version of its daemon.
    pub version: String,
    /// Seconds since it was heard of.
    pub silent_seconds: f64,
}

/// A server of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterServer {
    /// Host and port, or the path of its socket.
    pub address: String,
    /// True if there is a connection to it. To one that has nothing to be asked for there is none.
    pub connected: bool,
    /// Slots that it has; null if it is no server of a Redis Cluster.
    pub slots: Option<u16>,
    /// The error that ended the last connection to it; null once a call was answered after that.
    pub error: Option<String>,
}

/// A change by another node that was not taken over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusedChange {
    /// The change, as `deny 192.0.2.0/24`.
    pub change: String,
    /// Name of the node that made it, as far as the store says and this node has heard of it.
    pub node: Option<String>,
    /// Why it was not taken over.
    pub why: String,
    /// Whole seconds since then.
    pub seconds_ago: u64,
}

/// A shared limit, and this node's lease of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Lease {
    /// Name of the limit over all nodes: place, what it counts, and its budget.
    pub name: String,
    /// True if the lease decides; otherwise it is what `on_partition` says.
    pub in_contact: bool,
    /// Units (packets, bytes) that there are to be used now.
    pub held: u64,
    /// Units that were granted since the daemon's start.
    pub granted: u64,
    /// Units that packets used.
    pub used: u64,
    /// Units that were refused.
    pub denied: u64,
}

impl Render for Cluster {
    fn render(&self, text: &mut String) {
        let time = seconds(self.contact_seconds);
        let contact = match self.contact {
            ContactState::Starting => "not connected yet".to_owned(),
            ContactState::Connected => format!("connected for {time}"),
            ContactState::CutOff => format!("cut off for {time}"),
        };
        line(
            text,
            format_args!("node {}, {contact}; shares are for {} nodes", self.node, self.count),
        );
        let (calls, failed) = (number(self.calls), number(self.failed_calls));
        let millis = |time: Option<f64>| {
            time.map_or_else(|| "-".to_owned(), |time| format!("{:.1} ms", time * 1_000.0))
        };
        line(
            text,
            format_args!(
                "{calls} calls, {failed} failed; a call takes {}, at most {}; the server's clock \
                 is {} ahead",
                millis(self.round_trip_seconds),
                millis(self.worst_round_trip_seconds),
                millis(self.clock_ahead_seconds)
            ),
        );
        if let Some(error) = &self.last_error {
            line(text, format_args!("the latest error: {error}"));
        }
        if self.waiting_changes > 0 {
            line(text, format_args!("{} changes wait to be reported", self.waiting_changes));
        }
        let mut nodes = table(&["NODE", "RULES", "VERSION", ">HEARD OF"]);
        for node in &self.nodes {
            let here = if node.here { " (here)" } else { "" };
            nodes.add_row([
                format!("{}{here}", node.name),
                node.rules.clone(),
                node.version.clone(),
                format!("{:.0} s ago", node.silent_seconds),
            ]);
        }
        push(text, &nodes);
        let mut servers = table(&["SERVER", ">SLOTS", "STATE"]);
        for server in &self.servers {
            let state = match &server.error {
                Some(error) => error.as_str(),
                None if server.connected => "connected",
                None => "not in use",
            };
            servers.add_row([
                server.address.clone(),
                server.slots.map_or_else(|| "-".to_owned(), |slots| number(slots.into())),
                state.to_owned(),
            ]);
        }
        if !self.servers.is_empty() {
            push(text, &servers);
        }
        let mut leases = table(&["SHARED LIMIT", "LEASE", ">HELD", ">USED", ">REFUSED"]);
        for lease in &self.leases {
            let state = if lease.in_contact { "decides" } else { "on_partition" };
            leases.add_row([
                lease.name.clone(),
                state.to_owned(),
                number(lease.held),
                number(lease.used),
                number(lease.denied),
            ]);
        }
        push(text, &leases);
        if self.keys > 0 || self.keys_refused > 0 {
            let (keys, refused) = (number(self.keys as u64), number(self.keys_refused));
            line(
                text,
                format_args!("{keys} keys of rules have leases here; {refused} found none free"),
            );
        }
        if self.granted_beyond > 0 {
            let units = number(self.granted_beyond);
            line(text, format_args!("{units} units that the store granted were not taken"));
        }
        let by = if self.signed { "signed" } else { "not signed: there is no `key_file`" };
        line(text, format_args!("changes of bans and lists are {by}"));
        if self.refused_changes > 0 {
            let count = number(self.refused_changes);
            line(text, format_args!("{count} changes by other nodes were not taken over"));
            let mut refused = table(&["NOT TAKEN OVER", "OF", ">SINCE", "WHY"]);
            for at in &self.latest_refused {
                refused.add_row([
                    at.change.clone(),
                    at.node.clone().unwrap_or_else(|| "-".to_owned()),
                    seconds(at.seconds_ago),
                    at.why.clone(),
                ]);
            }
            push(text, &refused);
        }
        warnings(text, &self.warnings);
    }
}
