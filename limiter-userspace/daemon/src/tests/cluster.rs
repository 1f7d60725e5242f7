//! The daemon as a node: the limits that the rules share, and the reports from and to other nodes.

mod store;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use limiter_api::bans::{SetBan, Unban};
use limiter_api::cluster::{ClusterServer, ContactState};
use limiter_api::lists::{ListName, SetList, UnsetList};
use limiter_api::rules::{ApplyRules, Document};
use limiter_cluster::membership::{Membership, Met};
use limiter_cluster::memory::SharedMemory;
use limiter_cluster::status::ServerStatus;
use limiter_cluster::store::{Answers, Batch, Store, StoreError, WindowBatch};
use limiter_cluster::{Change, Cluster, Keys, List, NodeSettings, Notice, Notices, Status};
use limiter_common::wire::{Ban, ListEntry, Listed};
use limiter_datapath::fake::MemoryLeases;
use limiter_sharing::leases::Counts;
use limiter_sharing::{SharedSet, SharedTerms};

use super::shared::SHARED;
use super::*;

/// A store in memory that can be out of reach; so can one of the two servers that it claims to
/// have.
#[derive(Debug, Default)]
struct Distant {
    memory: SharedMemory,
    away: AtomicBool,
    down: AtomicBool,
}

impl Distant {
    fn there(&self) -> Result<&SharedMemory, StoreError> {
        if self.away.load(Ordering::Relaxed) {
            Err(StoreError::Lost("the store is away".to_owned()))
        } else {
            Ok(&self.memory)
        }
    }
}

impl Store for Distant {
    async fn exchange(&self, batch: &Batch) -> Result<Answers, StoreError> {
        self.there()?.exchange(batch).await
    }

    async fn windows(&self, batch: &WindowBatch) -> Result<Answers, StoreError> {
        self.there()?.windows(batch).await
    }

    async fn meet(&self, membership: &Membership) -> Result<Met, StoreError> {
        self.there()?.meet(membership).await
    }

    fn is_ready(&self) -> bool {
        true
    }

    fn servers(&self) -> Vec<ServerStatus> {
        let down = self.down.load(Ordering::Relaxed);
        let other = ServerStatus {
            address: "192.0.2.2:6379".to_owned(),
            connected: !down,
            slots: Some(6000),
            error: down.then(|| "the machine is off".to_owned()),
            keeping: None,
        };
        let address = "192.0.2.1:6379".to_owned();
        let slots = Some(10_384);
        vec![ServerStatus { address, connected: true, slots, error: None, keeping: None }, other]
    }
}

fn settings(name: &str) -> NodeSettings {
    NodeSettings {
        name: name.to_owned(),
        nodes: 1,
        shards: 4,
        timeout: Duration::from_millis(350),
        keys: None,
        newest: 0,
    }
}

/// A node in its own cluster.
pub(super) fn alone() -> Cluster {
    let leases = MemoryLeases::new(8, Counts::default());
    let store = Arc::new(Distant::default());
    Cluster::start_with(settings("a"), store, leases).unwrap().0
}

/// A daemon running as node `a`.
struct Node {
    daemon: Daemon,
    notices: Notices,
    store: Arc<Distant>,
}

/// Another node, without a daemon.
struct Other {
    cluster: Cluster,
    notices: Notices,
}

impl Node {
    /// Starts a node with 203.0.113.9 as management prefix, and the shared budget `customer`.
    fn start() -> Self {
        Self::with(None)
    }

    /// A node as before, with keys of the nodes.
    fn with(keys: Option<Keys>) -> Self {
        let mut daemon = Daemon::among(Some(1));
        let store = Arc::new(Distant::default());
        let leases = daemon.fake.open_now().leases().unwrap();
        let settings = NodeSettings { keys, ..settings("a") };
        let (cluster, notices) = Cluster::start_with(settings, Arc::clone(&store), leases).unwrap();
        crate::service::cluster::join(&mut daemon.service, cluster);
        Self { daemon, notices, store }
    }

    fn other(&self, name: &str) -> Other {
        self.other_with(name, None)
    }

    fn other_with(&self, name: &str, keys: Option<Keys>) -> Other {
        let leases = MemoryLeases::new(8, Counts::default());
        let settings = NodeSettings { keys, ..settings(name) };
        let (cluster, notices) =
            Cluster::start_with(settings, Arc::clone(&self.store), leases).unwrap();
        Other { cluster, notices }
    }

    /// Lets the data path's time go by, faster than the clock does, until `found` is.
    fn until<T>(&mut self, what: &str, mut found: impl FnMut(&mut Self) -> Option<T>) -> T {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(found) = found(self) {
                return found;
            }
            assert!(Instant::now() < end, "no {what}: {:?}", self.status());
            let now = self.daemon.fake.state().now;
            self.daemon.fake.state().now = now.plus(Ticks::from_nanos(10_000_000));
            sleep(Duration::from_millis(2));
        }
    }

    /// Does what the node reports, until it is `reported`.
    fn handle_until(&mut self, what: &str, reported: impl Fn(&Notice) -> bool) {
        self.until(what, |node| {
            let notice = node.notices.try_recv().ok()?;
            let is_reported = reported(&notice);
            node.daemon.service.handle_notices([notice]);
            is_reported.then_some(())
        });
    }

    fn status(&self) -> Arc<Status> {
        self.daemon.service.cluster.status().unwrap()
    }

    /// Waits until the node keeps these leases.
    fn keeps(&mut self, names: &[&str]) {
        self.until(&format!("leases of {names:?}"), |node| {
            let status = node.status();
            let kept: Vec<_> = status.leases.iter().map(|lease| &*lease.name).collect();
            (kept == names).then_some(())
        });
    }

    /// Waits for the change that the other node hears of next.
    fn reported(&mut self, other: &mut Other) -> Change {
        self.until("change", |_| match other.notices.try_recv().ok()? {
            Notice::Change(change) => Some(change),
            _ => None,
        })
    }

    /// Waits for a change by another node, and takes it over.
    fn takes_over(&mut self, other: &Other, change: Change) {
        other.cluster.publish(change).unwrap();
        self.handle_until("change", |notice| matches!(notice, Notice::Change(_)));
    }

    fn ban(&mut self, source: &str, seconds: u64) {
        let source = source.to_owned();
        self.daemon.service.ban(&SetBan { source, seconds, ..SetBan::default() }).unwrap();
    }

    fn list(&mut self, list: ListName, source: &str, seconds: Option<u64>) {
        let sources = vec![source.to_owned()];
        let request = SetList { list, sources, seconds, ..SetList::default() };
        self.daemon.service.list(&request).unwrap();
    }

    /// The banned sources, with the seconds left.
    fn banned(&self) -> Vec<(String, u64)> {
        let bans = self.daemon.service.bans().unwrap().entries;
        bans.into_iter().map(|ban| (ban.source, ban.ends_in_seconds)).collect()
    }

    /// The entry in the maps, management entries included.
    fn in_maps(&self, selector: &str) -> Option<Listed> {
        self.daemon.fake.state().lists.get(&select(selector)).and_then(ListEntry::verdict)
    }

    fn try_out(&mut self, text: &str) {
        let documents = vec![Document { name: "a.yaml".into(), text: text.to_owned() }];
        let confirm_seconds = NonZeroU32::new(3600);
        let request = ApplyRules { documents, force: false, confirm_seconds, session: None };
        self.daemon.service.apply_rules(&request).unwrap();
    }

    /// Number of nodes that the share in force is made for.
    fn shares(&self) -> u64 {
        let shared = &self.daemon.service.rule_sets.effective.shared;
        let mut buckets = shared.budgets.iter().filter_map(|shared| match shared.terms {
            SharedTerms::Bucket(limit) => Some(limit.settings().nodes),
            SharedTerms::Window { .. } => None,
        });
        buckets.next().unwrap()
    }

    fn end(mut self) {
        self.daemon.service.cluster.leave();
    }
}

const BOTH: [&str; 2] = ["0:packets:bucket:customer", "1:packets:fixed_3600s:customer"];

/// The file with another unit in the first limit: another limit, with another lease.
fn of_syns() -> String {
    SHARED.replace("requests_per_unit: 1000}", "requests_per_unit: 1000, count: syns}")
}

fn net(text: &str) -> ipnet::IpNet {
    text.parse().unwrap()
}

/// The node keeps the limits in force through a change, a reload, a trial, its end and its
/// confirmation.
#[test]
fn the_node_keeps_the_limits_in_force() {
    let mut node = Node::start();
    node.keeps(&BOTH);
    let mut other = node.other("b");
    let digest = node.daemon.service.rule_sets.layers.file.rules.digest();
    other.cluster.set_rules(SharedSet::default(), digest);
    let syns = ["0:syns:bucket:customer", BOTH[1]];
    node.try_out(&of_syns());
    node.keeps(&syns);
    // The other node has the rules of before.
    let differ = |node: &mut Node, other: &mut Other, nodes: &[&str]| {
        let nodes = nodes.iter().map(|&node| node.to_owned()).collect();
        let expected = Notice::RuleSetsDiffer { nodes };
        node.until("word of other rules", |_| {
            (other.notices.try_recv().ok()? == expected).then_some(())
        });
    };
    differ(&mut node, &mut other, &["a"]);
    node.daemon.service.revert().unwrap();
    node.keeps(&BOTH);
    differ(&mut node, &mut other, &[]);
    // Nobody confirms it.
    node.try_out(&of_syns());
    node.keeps(&syns);
    let now = node.daemon.fake.state().now;
    node.daemon.fake.state().now = now.plus(Ticks::from_nanos(3_600_000_000_000));
    node.daemon.service.settle().unwrap();
    node.keeps(&BOTH);
    node.try_out(&of_syns());
    node.daemon.service.confirm().unwrap();
    node.keeps(&syns);
    // Refused rules change nothing; rules without shared limits share nothing.
    node.daemon.write("nonsense");
    node.daemon.service.reload().unwrap_err();
    node.keeps(&syns);
    node.daemon.write("descriptors: []\n");
    let force = ReloadRules { force: true, ..ReloadRules::default() };
    node.daemon.service.reload_rules(force).unwrap();
    node.keeps(&[]);
    other.cluster.stop();
    node.end();
}

/// The leases are those by which the data path decides: they are granted, and end with the node.
#[test]
fn leases_are_granted_in_the_data_path_and_end_with_the_node() {
    let mut node = Node::start();
    let lease = node.daemon.leases()[0].1;
    let read = move |node: &Node| node.daemon.fake.state().model.lease(lease).read();
    node.until("grant", |node| (read(node).granted > 0).then_some(()));
    let held = read(&node);
    assert!(Ticks::new(held.expires) > node.daemon.fake.state().now, "{held:?}");
    node.daemon.service.cluster.leave();
    assert_eq!(read(&node).expires, 0);
    assert!(node.daemon.service.cluster.status().is_none());
}

/// After a change of the number of nodes, names and leases stay, and shares are recomputed. During
/// a trial that waits for its end, whatever the outcome.
#[test]
fn shares_follow_the_number_of_nodes() {
    let mut node = Node::start();
    node.keeps(&BOTH);
    let names = |node: &Node| {
        let leases = node.daemon.leases();
        leases.into_iter().map(|(name, lease)| (name.to_owned(), lease)).collect::<Vec<_>>()
    };
    let before = names(&node);
    let commits = node.daemon.fake.state().commits;
    assert_eq!(node.shares(), 1);
    let nodes = |count| move |notice: &Notice| *notice == Notice::Nodes(count);
    let other = node.other("b");
    node.handle_until("second node", nodes(2));
    assert_eq!((node.shares(), names(&node)), (2, before.clone()));
    assert_eq!(node.daemon.fake.state().commits, commits + 1);
    // A reload does not forget it.
    node.daemon.service.reload().unwrap();
    assert_eq!(node.shares(), 2);
    for confirm in [false, true] {
        node.try_out(SHARED);
        let third = node.other("c");
        node.handle_until("third node", nodes(3));
        assert_eq!(node.shares(), 2, "on trial");
        if confirm {
            node.daemon.service.confirm().unwrap();
        } else {
            node.daemon.service.revert().unwrap();
        }
        node.daemon.service.look_after_links();
        assert_eq!((node.shares(), names(&node)), (3, before.clone()));
        third.cluster.stop();
        node.handle_until("end of the third node", nodes(2));
        assert_eq!(node.shares(), 2);
    }
    other.cluster.stop();
    node.end();
}

#[test]
fn changes_made_here_are_reported() {
    let mut node = Node::start();
    let mut other = node.other("b");
    node.ban("192.0.2.7", 60);
    let Change::Ban { source, left } = node.reported(&mut other) else { panic!("not the ban") };
    assert_eq!(source.to_string(), "192.0.2.7");
    assert!(left > Duration::from_secs(30) && left <= Duration::from_mins(1), "{left:?}");
    node.daemon.service.unban(&Unban { source: "192.0.2.0/24".into() }).unwrap();
    assert_eq!(node.reported(&mut other), Change::Unban { sources: net("192.0.2.0/24") });
    node.list(ListName::Allow, "198.51.100.0/24", None);
    let sources = net("198.51.100.0/24");
    assert_eq!(node.reported(&mut other), Change::List { list: List::Allow, sources, left: None });
    node.list(ListName::Deny, "2001:db8::1", Some(60));
    let Change::List { list: List::Deny, sources, left: Some(left) } = node.reported(&mut other)
    else {
        panic!("not the deny entry");
    };
    assert_eq!(sources, net("2001:db8::/64"));
    assert!(left > Duration::from_secs(30) && left <= Duration::from_mins(1), "{left:?}");
    let sources = Some("198.51.100.0/24,2001:db8::1".to_owned());
    node.daemon.service.unlist(&UnsetList { sources, ..UnsetList::default() }).unwrap();
    assert_eq!(node.reported(&mut other), Change::Unlist { sources: net("198.51.100.0/24") });
    assert_eq!(node.reported(&mut other), Change::Unlist { sources: net("2001:db8::/64") });
    // A ban by a rule is reported once.
    {
        let mut state = node.daemon.fake.state();
        let until = state.now.plus(Ticks::from_nanos(60_000_000_000)).get();
        let ban = Ban { until, history: 1 << 56, rule: 1 };
        state.model.put_ban(&Source::V4([192, 0, 2, 8]), &ban);
    }
    let source = "192.0.2.8";
    for _ in 0..3 {
        node.daemon.service.housekeep().unwrap();
    }
    let reported = node.reported(&mut other);
    assert!(
        matches!(reported, Change::Ban { source: by, .. } if by.to_string() == source),
        "{reported:?}"
    );
    // Refusals are not reported: the next change received comes after them.
    let bad = SetBan { source: "203.0.113.9".into(), seconds: 5, ..SetBan::default() };
    node.daemon.service.ban(&bad).unwrap_err();
    let sources = vec!["192.0.2.1".to_owned(), "nonsense".to_owned()];
    node.daemon.service.list(&SetList { sources, ..SetList::default() }).unwrap_err();
    node.daemon.service.unban(&Unban { source: "192.0.2.9".into() }).unwrap();
    assert_eq!(node.reported(&mut other), Change::Unban { sources: net("192.0.2.9/32") });
    other.cluster.stop();
    node.end();
}

#[test]
fn changes_of_another_node_are_taken_over_and_not_reported_again() {
    let mut node = Node::start();
    let mut other = node.other("b");
    let source = "192.0.2.7".parse().unwrap();
    let left = Duration::from_mins(10);
    node.takes_over(&other, Change::Ban { source, left });
    let [(banned, seconds)] = node.banned().try_into().unwrap();
    assert_eq!(banned, "192.0.2.7");
    assert!((500..=600).contains(&seconds), "{seconds}");
    let view = node.daemon.service.source("192.0.2.7").unwrap();
    assert_eq!(view.banned_by.as_deref(), Some("(another node)"));
    node.daemon.service.housekeep().unwrap();
    node.takes_over(&other, Change::Unban { sources: net("192.0.2.0/24") });
    assert_eq!(node.banned(), []);
    let (sources, list) = (net("198.51.100.0/24"), List::Deny);
    node.takes_over(&other, Change::List { list, sources, left: Some(left) });
    assert_eq!(node.in_maps("198.51.100.0/24"), Some(Listed::Deny));
    let entries = node.daemon.service.lists().unwrap().entries;
    let ends = entries[0].expires_in_seconds.unwrap();
    assert!((500..=600).contains(&ends), "{ends}");
    node.takes_over(&other, Change::List { list: List::Allow, sources, left: None });
    assert_eq!(node.in_maps("198.51.100.0/24"), Some(Listed::Allow));
    node.takes_over(&other, Change::Unlist { sources });
    assert_eq!(node.in_maps("198.51.100.0/24"), None);
    // Removing entries that are gone already is not an error.
    node.takes_over(&other, Change::Unlist { sources });
    node.takes_over(&other, Change::Unban { sources });
    // The first that the other node hears of is this.
    node.ban("192.0.2.99", 60);
    assert!(matches!(
        node.reported(&mut other),
        Change::Ban { source, .. } if source.to_string() == "192.0.2.99"
    ));
    other.cluster.stop();
    node.end();
}

/// Against an attempt to deny the operator.
#[test]
fn management_prefixes_of_this_node_stay_on_top() {
    let mut node = Node::start();
    let other = node.other("b");
    let managed = net("203.0.113.9/32");
    let left = Duration::from_mins(10);
    node.takes_over(&other, Change::Ban { source: managed.addr(), left });
    assert_eq!(node.banned(), []);
    for (list, listed) in [(List::Deny, Listed::Management), (List::Allow, Listed::Allow)] {
        node.takes_over(&other, Change::List { list, sources: managed, left: None });
        assert_eq!(node.in_maps("203.0.113.9"), Some(listed));
    }
    // Protected again once it is no longer allowed.
    node.takes_over(&other, Change::Unlist { sources: managed });
    assert_eq!(node.in_maps("203.0.113.9"), Some(Listed::Management));
    // A wider entry is taken over, and the longer prefix wins in the program.
    let sources = net("203.0.113.0/24");
    node.takes_over(&other, Change::List { list: List::Deny, sources, left: None });
    assert_eq!(node.in_maps("203.0.113.0/24"), Some(Listed::Deny));
    assert_eq!(node.in_maps("203.0.113.9"), Some(Listed::Management));
    other.cluster.stop();
    node.end();
}

/// A ban that this node does not have may exist elsewhere.
#[test]
fn forgetting_what_is_not_here_is_an_answer() {
    let unban = Unban { source: "192.0.2.7".into() };
    let mut alone = Daemon::start(&[]);
    assert!(matches!(alone.service.unban(&unban), Err(Refusal::NotFound(_))));
    let mut node = Node::start();
    assert_eq!(node.daemon.service.unban(&unban).unwrap().forgotten, 0);
    let unlist = UnsetList { source: Some("192.0.2.7".into()), ..UnsetList::default() };
    assert!(matches!(alone.service.unlist(&unlist), Err(Refusal::NotFound(_))));
    assert_eq!(node.daemon.service.unlist(&unlist).unwrap().not_listed, 1);
    node.end();
}

/// The dashboard and the alerts use metrics, labels and values that a daemon has, and the manual
/// documents all of these.
#[test]
fn the_state_of_the_cluster_is_reported() {
    let alone = Daemon::start(&[]);
    let refusal =
        "this daemon shares nothing with others: start it with `limiter run --cluster FILE`";
    assert_eq!(alone.service.cluster().unwrap_err(), Refusal::NotFound(refusal.into()));
    assert!(!alone.service.metrics().unwrap().contains("limiter_cluster"));

    let mut node = Node::start();
    assert_eq!(node.daemon.service.cluster().unwrap().contact, ContactState::Starting);
    let other = node.other("b");
    other.cluster.set_rules(SharedSet::default(), 0xabc);
    node.handle_until("second node", |notice| *notice == Notice::Nodes(2));
    node.until("both nodes and leases", |node| {
        let status = node.status();
        let live = status.leases.len() == 2 && status.without_contact == 0;
        // The other one's first word may come before it has its rules.
        let both = status.nodes.iter().filter(|node| node.digest != 0).count() == 2;
        (live && both && status.leases[0].granted > 0).then_some(())
    });
    let shown = node.daemon.service.cluster().unwrap();
    assert_eq!((shown.node.as_str(), shown.contact), ("a", ContactState::Connected));
    assert_eq!((shown.count, shown.failed_calls, shown.waiting_changes), (2, 0, 0));
    assert!(shown.calls > 0 && shown.round_trip_seconds.is_some());
    let digest = format!("{:016x}", node.daemon.service.rule_sets.layers.file.rules.digest());
    let nodes: Vec<_> =
        shown.nodes.iter().map(|node| (node.name.as_str(), node.here, &*node.rules)).collect();
    assert_eq!(nodes, [("a", true, digest.as_str()), ("b", false, "0000000000000abc")]);
    assert_eq!(shown.leases.iter().map(|lease| &*lease.name).collect::<Vec<_>>(), BOTH);
    let text = limiter_api::render::text(&shown);
    let first = text.lines().next().unwrap();
    assert!(first.starts_with("node a, connected for "), "{text}");
    assert!(first.ends_with(" s; shares are for 2 nodes"), "{text}");
    let state = |server: &ClusterServer| (server.slots, server.connected, server.error.clone());
    let states: Vec<_> = shown.servers.iter().map(state).collect();
    assert_eq!(states, [(Some(10_384), true, None), (Some(6000), true, None)]);
    for part in [
        "SERVER",
        "192.0.2.2:6379",
        " 6,000 ",
        "NODE",
        "a (here)",
        "0000000000000abc",
        "SHARED LIMIT",
        BOTH[0],
        " decides ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let metrics = node.daemon.service.metrics().unwrap();
    dashboards::fit(&metrics);
    for line in [
        "limiter_cluster_connected 1",
        "limiter_cluster_server_up{server=\"192.0.2.1:6379\"} 1",
        "limiter_cluster_nodes 2",
        "limiter_cluster_shares 2",
        "limiter_cluster_calls_total{result=\"failed\"} 0",
        "limiter_cluster_leases_without_contact 0",
        "limiter_cluster_other_rules 1",
        "limiter_cluster_waiting_changes 0",
        "limiter_cluster_refused_changes_total 0",
        "limiter_cluster_granted_beyond_total 0",
        "limiter_cluster_lease_used_total{limit=\"0:packets:bucket:customer\"} 0",
        "limiter_cluster_lease_denied_total{limit=\"1:packets:fixed_3600s:customer\"} 0",
    ] {
        assert!(metrics.lines().any(|reported| reported == line), "{line}\n{metrics}");
    }
    other.cluster.stop();
    node.end();
}

/// Warnings of the status, except those about the node's limits on the store.
fn repeated_errors(node: &Node) -> Vec<String> {
    let mut warnings = node.daemon.service.status().unwrap().warnings;
    warnings.retain(|warning| !warning.starts_with("the answers of "));
    warnings
}

#[test]
fn troubles_are_warned_of_while_they_last() {
    let mut node = Node::start();
    node.keeps(&BOTH);
    assert_eq!(repeated_errors(&node), [""; 0]);
    node.store.away.store(true, Ordering::Relaxed);
    node.handle_until("loss", |notice| matches!(notice, Notice::Lost { .. }));
    let warnings = repeated_errors(&node);
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].starts_with("no contact to the other nodes: "), "{warnings:?}");
    assert!(warnings[0].contains("the store is away"), "{warnings:?}");
    let shown = node.daemon.service.cluster().unwrap();
    assert_eq!(shown.contact, ContactState::CutOff);
    assert!(shown.warnings.contains(&warnings[0]), "{:?}", shown.warnings);
    assert!(shown.failed_calls > 0 && shown.last_error.is_some());
    assert!(limiter_api::render::text(&shown).contains("the latest error: "));
    let metrics = node.daemon.service.metrics().unwrap();
    assert!(metrics.contains("limiter_cluster_connected 0\n"), "{metrics}");
    node.store.away.store(false, Ordering::Relaxed);
    node.handle_until("contact", |notice| matches!(notice, Notice::Regained { .. }));
    assert_eq!(repeated_errors(&node), [""; 0]);

    // One of several servers is down: the others answer.
    node.store.down.store(true, Ordering::Relaxed);
    node.handle_until("loss of a server", |notice| matches!(notice, Notice::ServerLost { .. }));
    let warnings = repeated_errors(&node);
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].starts_with("no contact to 192.0.2.2:6379, one of "), "{warnings:?}");
    let shown = node.daemon.service.cluster().unwrap();
    assert_eq!(shown.contact, ContactState::Connected);
    assert!(limiter_api::render::text(&shown).contains("the machine is off"));
    let metrics = node.daemon.service.metrics().unwrap();
    assert!(metrics.contains("limiter_cluster_server_up{server=\"192.0.2.2:6379\"} 0\n"));
    node.store.down.store(false, Ordering::Relaxed);
    node.handle_until("the server", |notice| matches!(notice, Notice::ServerRegained { .. }));
    assert_eq!(repeated_errors(&node), [""; 0]);

    let other = node.other("b");
    node.handle_until("other rules", |notice| matches!(notice, Notice::RuleSetsDiffer { .. }));
    let warnings = repeated_errors(&node);
    assert_eq!(
        warnings,
        ["other rules than here are in force on b: `limiter cluster` on both shows it"]
    );
    let digest = node.daemon.service.rule_sets.layers.file.rules.digest();
    other.cluster.set_rules(SharedSet::default(), digest);
    node.handle_until("agreement", |notice| matches!(notice, Notice::RuleSetsDiffer { .. }));
    assert_eq!(repeated_errors(&node), [""; 0]);

    let twin = node.other("a");
    twin.cluster.set_rules(SharedSet::default(), digest);
    node.handle_until("twin", |notice| matches!(notice, Notice::SameName { .. }));
    let named = "another node is called a, too: give each node a name of its own (`node` in the \
                 file of --cluster)";
    let warned = |node: &Node| {
        let warnings = repeated_errors(node);
        warnings.iter().any(|reported| reported == named)
    };
    node.until("warning of the twin", |node| warned(node).then_some(()));
    twin.cluster.stop();
    node.until("end of the warning", |node| (!warned(node)).then_some(()));
    other.cluster.stop();
    // A thread that ended by itself is no contact.
    node.daemon.service.cluster.ended();
    let warnings = repeated_errors(&node);
    assert!(warnings[0].contains("the thread for shared limits has ended"), "{warnings:?}");
    node.end();
}
