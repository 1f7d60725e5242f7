//! The cluster as metrics. There are at most as many leases as limits of shared budgets.

use limiter_cluster::status::{Contact, LeaseStatus};
use limiter_cluster::{Status, keeping};
use limiter_text::exposition::{Exposition, Kind};

/// Selects a count of a lease.
type Count = fn(&LeaseStatus) -> u64;

/// Adds the metrics of a node.
pub(super) fn metrics(page: &mut Exposition, status: &Status, refused_changes: u64) {
    use Kind::{Counter, Gauge};
    let connected = matches!(status.contact, Contact::Connected(_));
    page.metric("limiter_cluster_connected", Gauge, "1 while the store of shared limits answers.")
        .add(&[], u8::from(connected));
    let help = "0 while no call was answered by a server of the store since an error.";
    let mut servers = page.metric("limiter_cluster_server_up", Gauge, help);
    for server in &status.servers {
        servers.add(&[("server", &*server.address)], u8::from(server.error.is_none()));
    }
    keeping::metrics(page, &status.servers);
    page.metric("limiter_cluster_nodes", Gauge, "Nodes that live, as far as is known.")
        .add(&[], status.nodes.len());
    page.metric("limiter_cluster_shares", Gauge, "Nodes that shares are made of.")
        .add(&[], status.count);
    page.metric("limiter_cluster_calls_total", Counter, "Calls of the store.")
        .add(&[("result", "ok")], status.calls.saturating_sub(status.failed))
        .add(&[("result", "failed")], status.failed);
    if let Some(time) = status.round_trip {
        let help = "Seconds that the latest call of the store took.";
        page.metric("limiter_cluster_round_trip_seconds", Gauge, help).add(&[], time.as_secs_f64());
    }
    let help = "Leases that decide nothing, for want of an answer of the store.";
    page.metric("limiter_cluster_leases_without_contact", Gauge, help)
        .add(&[], status.without_contact);
    let help = "Keys of rules that have leases on this node.";
    page.metric("limiter_cluster_keys", Gauge, help).add(&[], status.keys);
    let help = "Keys that found no lease, because all were in use.";
    page.metric("limiter_cluster_keys_refused_total", Counter, help).add(&[], status.keys_refused);
    let here = status.nodes.iter().find(|node| node.here).map(|node| node.digest);
    let differ = status.nodes.iter().filter(|node| here.is_some_and(|here| node.digest != here));
    let help = "Nodes with another rule set than this one.";
    page.metric("limiter_cluster_other_rules", Gauge, help).add(&[], differ.count());
    let help = "Changes of bans and lists that wait to be reported to the other nodes.";
    page.metric("limiter_cluster_waiting_changes", Gauge, help).add(&[], status.waiting_changes);
    let help = "Changes of bans and lists by other nodes that were not taken over.";
    page.metric("limiter_cluster_refused_changes_total", Counter, help).add(&[], refused_changes);
    let help = "Units granted beyond what the limits allow this node alone, and not taken.";
    page.metric("limiter_cluster_granted_beyond_total", Counter, help).add(&[], status.beyond);
    let of: [(_, _, _, Count); 4] = [
        ("limiter_cluster_lease_held", Gauge, "Units of a lease to be used.", |of| of.held),
        ("limiter_cluster_lease_granted_total", Counter, "Units granted.", |of| of.granted),
        ("limiter_cluster_lease_used_total", Counter, "Units that packets used.", |of| of.used),
        ("limiter_cluster_lease_denied_total", Counter, "Units refused.", |of| of.denied),
    ];
    for (name, kind, help, count) in of {
        let mut samples = page.metric(name, kind, help);
        for lease in &status.leases {
            samples.add(&[("limit", &*lease.name)], count(lease));
        }
    }
}
