//! This node of a cluster, as `limiter cluster` shows it.

use std::time::{Duration, SystemTime};

use limiter_api::cluster::{
    Cluster, ClusterNode, ClusterServer, ContactState, Lease, RefusedChange,
};
use limiter_cluster::status::{self, Contact, LeaseStatus, NodeStatus, ServerStatus, Status};

fn since(time: SystemTime) -> u64 {
    SystemTime::now().duration_since(time).unwrap_or_default().as_secs()
}

/// Microseconds as seconds.
fn ahead(micros: i64) -> f64 {
    let time = Duration::from_micros(micros.unsigned_abs()).as_secs_f64();
    if micros < 0 { -time } else { time }
}

/// The answer, but for what the daemon itself has refused and warns about.
pub(crate) fn cluster(status: &Status) -> Cluster {
    let (contact, contact_seconds) = match status.contact {
        Contact::Starting => (ContactState::Starting, 0),
        Contact::Connected(time) => (ContactState::Connected, since(time)),
        Contact::CutOff(time) => (ContactState::CutOff, since(time)),
    };
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    Cluster {
        node: status.name.clone(),
        contact,
        contact_seconds,
        last_error: status.last_error.as_ref().map(|(_, error)| error.clone()),
        calls: status.calls,
        failed_calls: status.failed,
        round_trip_seconds: seconds(status.round_trip),
        worst_round_trip_seconds: seconds(status.worst_round_trip),
        clock_ahead_seconds: status.clock_ahead.map(ahead),
        count: status.count,
        nodes: status.nodes.iter().map(node).collect(),
        servers: status.servers.iter().map(server).collect(),
        leases: status.leases.iter().map(lease).collect(),
        keys: status.keys,
        keys_refused: status.keys_refused,
        waiting_changes: status.waiting_changes,
        signed: status.signed,
        refused_changes: 0,
        latest_refused: Vec::new(),
        granted_beyond: status.beyond,
        warnings: Vec::new(),
    }
}

/// A change that was refused `since` ago.
pub(crate) fn refused_change(since: Duration, refused: &status::RefusedChange) -> RefusedChange {
    let status::RefusedChange { change, node, why } = refused.clone();
    RefusedChange { change, node, why, seconds_ago: since.as_secs() }
}

fn node(node: &NodeStatus) -> ClusterNode {
    ClusterNode {
        name: node.name.clone(),
        here: node.here,
        rules: format!("{:016x}", node.digest),
        version: node.version.clone(),
        silent_seconds: node.silent.as_secs_f64(),
    }
}

fn server(server: &ServerStatus) -> ClusterServer {
    let ServerStatus { address, connected, slots, error, .. } = server.clone();
    ClusterServer { address, connected, slots, error }
}

fn lease(lease: &LeaseStatus) -> Lease {
    let LeaseStatus { granted, used, denied, held, in_contact, .. } = *lease;
    Lease { name: lease.name.to_string(), in_contact, held, granted, used, denied }
}
