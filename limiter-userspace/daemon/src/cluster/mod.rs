//! This node in its cluster: a separate thread keeps the limits that nodes share. Bans and list
//! entries that change here are reported to the other nodes, and theirs are taken over.

pub(crate) mod heard;
pub(crate) mod refusals;
pub(crate) mod store_guard;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ipnet::IpNet;
use limiter_api::render;
use limiter_cluster::keeping::Kept;
use limiter_cluster::status::RefusedChange;
use limiter_cluster::{Change, Cluster, Notice, Status};
use limiter_common::time::Ticks;
use limiter_rules::Selector;
use limiter_rules::model::TriePrefix;

use self::refusals::Refusals;
use crate::disk::state_dir::{StateDir, StateError};
use crate::error::ServiceError;
use crate::lists::bans::{BY_HAND, BY_NODE};
use crate::machine::attached::Attached;
use crate::rule_sets::effective::EffectiveSet;
use crate::rule_sets::layers::Layers;

/// Data that the store keeps for a node of packets.
const KEPT: Kept = Kept { limits: true, queues: false };

/// The node, and the conditions that it reported and that still hold.
#[derive(Debug)]
struct Node {
    cluster: Cluster,
    /// Number of nodes for which the next rule set is made.
    nodes: u64,
    /// Latest error, while there is no contact to the store.
    cut_off: Option<String>,
    /// Servers of the store that do not answer, with the reason, while others do.
    servers: BTreeMap<String, String>,
    same_name: Option<String>,
    /// Nodes with another rule set.
    others: Vec<String>,
    bans: ReportedBans,
    /// Changes by other nodes that were not taken over.
    refusals: Refusals,
    /// Time of the newest change taken over, on disk.
    heard: u64,
}

/// Time for which `limiter status` warns about a store that granted too much.
const WARNED: Duration = Duration::from_mins(10);

/// Bans by rules of this node that were reported to the other nodes.
#[derive(Debug, Default)]
struct ReportedBans {
    /// End of each ban, in ticks.
    reported: HashMap<[u8; 16], u64>,
    /// Time of the next look at the bans.
    next: Option<Instant>,
}

/// Most bans reported after one look; the rest follow after the next look.
const BANS_AT_ONCE: usize = 500;
/// Largest share of the time for looking at bans: one in `LOOKING`.
const LOOKING: u32 = 50;

/// The node, if this daemon is one of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Membership(Option<Node>);

/// A task of the node for the rest of the daemon.
#[derive(Debug)]
pub(crate) enum Order {
    /// Make the rules in force for another number of nodes.
    CatchUp,
    /// Make a change by another node here, too.
    TakeOver(Change),
}

impl Membership {
    /// Takes the thread that keeps shared limits, and gives it the limits in force.
    pub(crate) fn join(&mut self, cluster: Cluster, layers: &Layers, effective: &EffectiveSet) {
        let nodes = layers.cluster.unwrap_or(1);
        let heard = cluster.status().newest_change;
        self.0 = Some(Node {
            heard,
            cluster,
            nodes,
            cut_off: None,
            servers: BTreeMap::new(),
            same_name: None,
            others: Vec::new(),
            bans: ReportedBans::default(),
            refusals: Refusals::default(),
        });
        self.share(layers, effective);
    }

    /// Ends the thread: leases end, and units are given back.
    pub(crate) fn leave(&mut self) {
        if let Some(node) = self.0.take() {
            node.cluster.stop();
        }
    }

    /// Gives the shared limits in force to the thread that keeps their leases.
    pub(crate) fn share(&self, layers: &Layers, effective: &EffectiveSet) {
        if let Some(node) = &self.0 {
            let digest = layers.file.rules.digest();
            node.cluster.set_rules(effective.shared.clone(), digest);
        }
    }

    /// State of the node; `None` without a cluster.
    pub(crate) fn status(&self) -> Option<Arc<Status>> {
        self.0.as_ref().map(|node| node.cluster.status())
    }

    /// Number of nodes for which the next rule set is made; `None` without a cluster.
    pub(crate) fn nodes(&self) -> Option<u64> {
        self.0.as_ref().map(|node| node.nodes)
    }

    /// Warnings about the cluster, for `limiter status`.
    pub(crate) fn warnings(&self, layers: &Layers) -> Vec<String> {
        let Some(node) = &self.0 else { return Vec::new() };
        let mut warnings = store_guard::warnings(layers, &node.cluster.status().servers);
        if let Some(error) = &node.cut_off {
            warnings.push(format!(
                "no contact to the other nodes: {error}; budgets with `scope: cluster` do what \
                 their `on_partition` says: `limiter cluster`"
            ));
        }
        warnings.extend(node.servers.iter().map(|(address, error)| {
            format!(
                "no contact to {address}, one of the servers of the store: {error}; shared limits \
                 whose accounts it has do what their `on_partition` says: `limiter cluster`"
            )
        }));
        let status = node.cluster.status();
        warnings.extend(status.servers.iter().flat_map(|server| server.wrong(KEPT)));
        let beyond = status.latest_beyond.as_ref();
        let is_new = |at: SystemTime| at.elapsed().is_ok_and(|since| since < WARNED);
        if let Some(beyond) = beyond.filter(|beyond| is_new(beyond.at)) {
            warnings.push(format!(
                "the store granted more of {} than the limit allows this node alone, and the node \
                 took no more than that: the store lost its state, its clock went ahead, or it \
                 does not count: `limiter cluster`",
                beyond.limit
            ));
        }
        warnings.extend(node.refusals.warning());
        let is_twin =
            |name: &String| status.nodes.iter().any(|other| !other.here && other.name == *name);
        if let Some(name) = node.same_name.as_ref().filter(|name| is_twin(name)) {
            warnings.push(format!(
                "another node is called {name}, too: give each node a name of its own (`node` in \
                 the file of --cluster)"
            ));
        }
        if !node.others.is_empty() {
            warnings.push(format!(
                "other rules than here are in force on {}: `limiter cluster` on both shows it",
                node.others.join(", ")
            ));
        }
        warnings
    }

    /// Notes a report of the node; returns the task that follows from it for the rest of the
    /// daemon.
    pub(crate) fn handle_notices(&mut self, notice: Notice) -> Option<Order> {
        let node = self.0.as_mut()?;
        match notice {
            Notice::Nodes(nodes) => {
                tracing::info!(nodes, "limits are shared by another number of nodes");
                node.nodes = nodes;
                return Some(Order::CatchUp);
            }
            Notice::Change(change) => return Some(Order::TakeOver(change)),
            Notice::Refused { count, latest } => node.refusals.note(count, latest),
            Notice::Keeping(server) => {
                for words in server.wrong(KEPT).into_iter().chain(server.not_looked_at(KEPT)) {
                    tracing::warn!("{words}");
                }
            }
            Notice::Beyond { limit, units } => {
                tracing::warn!(
                    units,
                    "the store granted more of {limit} than the limit allows this node alone: that \
                     was not taken"
                );
            }
            Notice::Missed { changes } => {
                let changes = changes.map_or_else(|| "some".to_owned(), |count| count.to_string());
                tracing::error!(
                    "{changes} changes of bans and lists by other nodes were missed, because there \
                     was no contact for too long: compare `limiter lists` and `limiter bans`"
                );
            }
            Notice::Lost { error } => {
                tracing::warn!(
                    %error,
                    "no contact to the other nodes: shared limits do what `on_partition` says"
                );
                node.cut_off = Some(error);
            }
            Notice::Regained { after } => {
                node.cut_off = None;
                let after = render::seconds(after.as_secs());
                tracing::info!("contact to the other nodes again, after {after}");
            }
            Notice::ServerLost { address, slots, error } => {
                tracing::warn!(
                    %error, slots,
                    "no contact to {address}, one of the servers of the store: shared limits whose \
                     accounts it has do what `on_partition` says"
                );
                node.servers.insert(address, error);
            }
            Notice::ServerRegained { address } => {
                tracing::info!("{address} answers again, or others have its slots now");
                node.servers.remove(&address);
            }
            Notice::Foreign { error } => tracing::error!("a shared limit is not shared: {error}"),
            Notice::SameName { name } => {
                tracing::error!("another node is called {name}, too: give each a name of its own");
                node.same_name = Some(name);
            }
            Notice::RuleSetsDiffer { nodes } => {
                if nodes.is_empty() {
                    tracing::info!("all nodes have the same rules again");
                } else {
                    tracing::warn!("other rules are in force on {}", nodes.join(", "));
                }
                node.others = nodes;
            }
        }
        None
    }

    /// Notes a change by another node that the guards of this node refused.
    pub(crate) fn refuse(&mut self, change: String, why: String) {
        if let Some(node) = &mut self.0 {
            node.refusals.note(1, [RefusedChange { change, node: None, why }]);
        }
    }

    /// Stores on disk which change by other nodes is the newest, where changes are signed.
    pub(crate) fn keep_heard(&mut self, state: &StateDir) -> Result<(), StateError> {
        let Some(node) = &mut self.0 else { return Ok(()) };
        let newest = node.cluster.status().newest_change;
        if newest > node.heard {
            heard::store(state, newest)?;
            node.heard = newest;
        }
        Ok(())
    }

    /// Logs refused changes from time to time.
    pub(crate) fn log_refusals(&mut self) {
        if let Some(node) = &mut self.0 {
            node.refusals.log();
        }
    }

    /// Changes by other nodes that were not taken over.
    pub(crate) fn refusals(&self) -> Option<&Refusals> {
        self.0.as_ref().map(|node| &node.refusals)
    }

    /// Notes that the thread of the node has ended by itself.
    pub(crate) fn ended(&mut self) {
        tracing::error!(
            "the thread for shared limits has ended: they do what `on_partition` says until the \
             daemon is started again"
        );
        if let Some(node) = &mut self.0 {
            node.cut_off = Some("the thread for shared limits has ended".to_owned());
        }
    }

    /// Reports changes made here to the other nodes.
    pub(crate) fn publish(&self, changes: impl IntoIterator<Item = Change>) {
        let Some(node) = &self.0 else { return };
        let mut refused =
            changes.into_iter().filter_map(|change| node.cluster.publish(change).err());
        if let Some(error) = refused.next() {
            let more = refused.count();
            tracing::error!(
                %error,
                "the other nodes are not informed, and not of {more} changes after it: make them there, \
                 too"
            );
        }
    }

    /// Reports bans made by rules of this node to the other nodes.
    pub(crate) fn report_bans(&mut self, datapath: &Attached) -> Result<(), ServiceError> {
        let Some(node) = &mut self.0 else { return Ok(()) };
        let began = Instant::now();
        if node.bans.next.is_some_and(|next| began < next) {
            return Ok(());
        }
        let datapath = datapath.get()?;
        let now = datapath.now();
        let in_force = datapath.bans()?.into_iter().filter(|(_, ban)| {
            // A ban by hand was reported when it was made, and another node reported its own ban.
            ![BY_HAND, BY_NODE].contains(&ban.rule) && Ticks::new(ban.until) > now
        });
        let in_force: HashMap<[u8; 16], u64> =
            in_force.map(|(source, ban)| (source, ban.until)).collect();
        let ReportedBans { reported, next } = &mut node.bans;
        reported.retain(|source, _| in_force.contains_key(source));
        let new =
            in_force.into_iter().filter(|(source, until)| reported.get(source) != Some(until));
        let mut changes = Vec::new();
        for (source, until) in new.take(BANS_AT_ONCE).collect::<Vec<_>>() {
            reported.insert(source, until);
            let left = Duration::from_nanos(Ticks::new(until).since(now).as_nanos());
            let source =
                TriePrefix::of_source(source).selector().as_ref().and_then(reported_prefix);
            changes.extend(source.map(|net| Change::Ban { source: net.addr(), left }));
        }
        *next = began.checked_add(began.elapsed() * LOOKING);
        self.publish(changes);
        Ok(())
    }
}

/// Prefix of a selector, as nodes report it; `None` for all sources.
pub(crate) fn reported_prefix(selector: &Selector) -> Option<IpNet> {
    match selector {
        Selector::Prefix(net) => Some(*net),
        Selector::Every => None,
    }
}
