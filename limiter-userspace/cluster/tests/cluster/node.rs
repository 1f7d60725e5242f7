//! Nodes that run, each in a thread of its own, over a store in memory and in real time.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use limiter_cluster::memory::SharedMemory;
use limiter_cluster::redis::RedisSettings;
use limiter_cluster::status::Contact;
use limiter_cluster::{Change, Cluster, Config, NodeSettings, Notice, Notices, Status};
use limiter_common::wire::{Ask, KeyLeases, TableKey};
use limiter_datapath::fake::MemoryLeases;
use limiter_sharing::Leases;
use limiter_sharing::key::Words;
use limiter_sharing::leases::Counts;
use limiter_sharing::window::{Window, WindowKind};
use limiter_sharing::{Settings, Shared, SharedId, SharedLimit, SharedSet, SharedTerms};

use crate::simulator::meter::Meter;
use crate::simulator::scene::settings;

/// A node with its leases and what it reports.
pub(crate) struct Node {
    pub(crate) cluster: Cluster,
    pub(crate) notices: Notices,
    pub(crate) leases: MemoryLeases,
}

pub(crate) fn node_settings(name: &str) -> NodeSettings {
    NodeSettings {
        name: name.to_owned(),
        nodes: 2,
        shards: 4,
        timeout: Duration::from_millis(350),
        keys: None,
        newest: 0,
    }
}

impl Node {
    fn start(name: &str, store: &Arc<SharedMemory>) -> Self {
        let leases = MemoryLeases::new(8, Counts { used: 5_000, denied: 70 });
        let (cluster, notices) =
            Cluster::start_with(node_settings(name), Arc::clone(store), leases.clone())
                .expect("it starts");
        Self { cluster, notices, leases }
    }

    /// A node over a real store.
    pub(crate) fn over(name: &str, redis: RedisSettings, leases: usize) -> Self {
        let leases = MemoryLeases::new(leases, Counts::default());
        let config = Config { redis, node: node_settings(name), key_file: None };
        let (cluster, notices) = Cluster::start(config, leases.clone()).expect("it starts");
        Self { cluster, notices, leases }
    }

    /// Waits for a notice that is asked for, and drops those before it.
    pub(crate) fn wait<T>(&mut self, what: &str, is: impl Fn(&Notice) -> Option<T>) -> T {
        let end = Instant::now() + Duration::from_secs(15);
        loop {
            while let Ok(notice) = self.notices.try_recv() {
                if let Some(found) = is(&notice) {
                    return found;
                }
            }
            assert!(Instant::now() < end, "no {what}: {:?}", self.cluster.status());
            sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn shows(&self, what: &str, is: impl Fn(&Status) -> bool) -> Arc<Status> {
        let end = Instant::now() + Duration::from_secs(15);
        loop {
            let status = self.cluster.status();
            if is(&status) {
                return status;
            }
            assert!(Instant::now() < end, "no {what}: {status:?}");
            sleep(Duration::from_millis(10));
        }
    }
}

/// A budget of 1000 a second over all nodes.
pub(crate) fn budget(name: &str, lease: u32) -> Shared {
    let limit = SharedLimit::new(Settings { always: true, ..settings(2) }).expect("good");
    Shared { name: name.into(), id: SharedId::Named, lease, terms: SharedTerms::Bucket(limit) }
}

fn window(name: &str, lease: u32, quota: u64) -> Shared {
    let kind = WindowKind::Fixed;
    let window =
        Window { kind, length: 86_400_000_000, quota, largest: 1, life: 800_000, lease_cap: 250 };
    Shared {
        name: name.into(),
        id: SharedId::Named,
        lease,
        terms: SharedTerms::Window { window, sync: 200_000 },
    }
}

/// A meter of what both pass of it.
pub(crate) fn meter() -> Meter {
    Meter::new(settings(2).rate)
}

/// Offers `rate` units a second to each node for a time, and meters what passes of all.
fn drive(nodes: &[&Node], lease: u32, rate: f64, time: Duration) -> (u64, Meter) {
    let mut meter = meter();
    let begin = Instant::now();
    let (mut offered, mut passed) = (0u64, 0);
    while begin.elapsed() < time {
        let now = begin.elapsed();
        while (offered as f64) < now.as_secs_f64() * rate {
            offered += 1;
            for node in nodes {
                if node.leases.packet(lease, 1) {
                    passed += 1;
                    meter.pass(begin.elapsed().as_micros() as u64, 1);
                }
            }
        }
        sleep(Duration::from_millis(1));
    }
    (passed, meter)
}

#[test]
fn two_nodes_share_one_budget() {
    let store = Arc::new(SharedMemory::default());
    let nodes = [Node::start("a", &store), Node::start("b", &store)];
    for node in &nodes {
        node.cluster.set_rules(vec![budget("customer", 3)].into(), 1);
    }
    let both: Vec<&Node> = nodes.iter().collect();
    let (passed, meter) = drive(&both, 3, 1500.0, Duration::from_secs(4));
    println!("{passed} of 12,000 passed in 4 s, worst window {} over 1000/s", meter.excess());
    assert!(meter.excess() <= 1000, "burst and rate are 1000: {}", meter.excess());
    assert!(passed >= 3_000, "{passed}");
    let status = nodes[0].shows("lease in contact", |status| {
        status.without_contact == 0 && status.leases.first().is_some_and(|lease| lease.denied > 0)
    });
    assert_eq!(status.leases.len(), 1);
    let lease = &status.leases[0];
    assert!(lease.used > 0 && lease.used <= lease.granted && lease.denied > 0, "{status:?}");
    assert!(matches!(status.contact, Contact::Connected(_)));
    for node in nodes {
        node.cluster.stop();
        assert_eq!(node.leases.words(3).expires, 0);
        assert!(!node.leases.packet(3, 1));
    }
}

/// New rules: limits that stay, and that go.
#[test]
fn limits_that_stay_keep_their_units_and_others_give_them_back() {
    let store = Arc::new(SharedMemory::default());
    let node = Node::start("a", &store);
    node.cluster.set_rules(vec![budget("x", 0), window("y", 1, 5)].into(), 1);
    let end = Instant::now() + Duration::from_secs(10);
    while !node.leases.packet(0, 1) || !node.leases.packet(1, 1) {
        assert!(Instant::now() < end, "{:?}", node.cluster.status());
        sleep(Duration::from_millis(20));
    }
    // Another burst of the same budget; another budget takes the lease of the window.
    let SharedTerms::Bucket(limit) = budget("x", 0).terms else { unreachable!() };
    let larger = Settings { burst: 2000, ..*limit.settings() };
    let terms = SharedTerms::Bucket(SharedLimit::new(larger).expect("good"));
    let before = node.leases.words(0);
    let rules = vec![Shared { terms, ..budget("x", 0) }, budget("z", 1)];
    node.cluster.set_rules(rules.into(), 2);
    let shows_z = |status: &Status| status.leases.iter().any(|lease| &*lease.name == "z");
    let status = node.shows("the new rules", shows_z);
    assert_eq!(status.leases.iter().map(|lease| lease.lease).collect::<Vec<_>>(), [0, 1]);
    let after = node.leases.words(0);
    assert!(after.granted >= before.granted && after.expires > 0, "{before:?} {after:?}");
    // Units that the window held and did not use are there for another node.
    let other = Node::start("b", &store);
    other.cluster.set_rules(vec![window("y", 0, 5)].into(), 2);
    let end = Instant::now() + Duration::from_secs(3);
    let mut passed = 0;
    while Instant::now() < end {
        passed += u64::from(other.leases.packet(0, 1));
        sleep(Duration::from_millis(20));
    }
    assert!((3..=4).contains(&passed), "{passed} of the four that were not used");
    // Without rules all leases end.
    node.cluster.set_rules(SharedSet::default(), 3);
    node.shows("no leases", |status| status.leases.is_empty());
    for lease in 0..2 {
        let Words { expires, .. } = node.leases.words(lease);
        assert_eq!(expires, 0);
    }
    node.cluster.stop();
    other.cluster.stop();
}

#[test]
fn nodes_come_and_go_and_inform_each_other() {
    let store = Arc::new(SharedMemory::default());
    let mut nodes = ["a", "b", "c"].map(|name| Node::start(name, &store));
    let is_count = |count| move |notice: &Notice| (*notice == Notice::Nodes(count)).then_some(());
    for node in &mut nodes {
        node.wait("third node", is_count(3));
    }
    // Each has its rules; one has others.
    for (node, digest) in nodes.iter().zip([7, 7, 8]) {
        node.cluster.set_rules(vec![budget("x", 0)].into(), digest);
    }
    let named = |names: &[&str]| {
        let nodes: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        move |notice: &Notice| {
            (*notice == Notice::RuleSetsDiffer { nodes: nodes.clone() }).then_some(())
        }
    };
    nodes[0].wait("c, which differs", named(&["c"]));
    nodes[2].wait("all, which differ", named(&["a", "b"]));
    nodes[2].cluster.set_rules(vec![budget("x", 0)].into(), 7);
    nodes[0].wait("agreement", named(&[]));
    let status = nodes[1].shows("three nodes", |status| status.nodes.len() == 3);
    assert_eq!(status.nodes.iter().filter(|node| node.here).count(), 1);
    // A ban on one reaches the others within a period of a second, and not itself.
    let source = std::net::IpAddr::from([192, 0, 2, 7]);
    let ban = Change::Ban { source, left: Duration::from_mins(1) };
    let begin = Instant::now();
    nodes[0].cluster.publish(ban).expect("room");
    for node in &mut nodes[1..] {
        let left = node.wait("the ban", |notice| match notice {
            Notice::Change(Change::Ban { source: banned, left }) if *banned == source => {
                Some(*left)
            }
            _ => None,
        });
        assert!(left <= Duration::from_mins(1) && left > Duration::from_secs(50), "{left:?}");
    }
    println!("a ban was at the two others after {} ms", begin.elapsed().as_millis());
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    while let Ok(notice) = nodes[0].notices.try_recv() {
        assert!(!matches!(notice, Notice::Change(_)), "{notice:?}");
    }
    let [mut first, second, third] = nodes;
    third.cluster.stop();
    second.cluster.stop();
    first.wait("that they are gone", is_count(2));
    first.cluster.stop();
    assert_eq!(store.lock().keys(), 0, "units that were not used went back");
}

#[test]
fn two_nodes_of_one_name_are_found_by_both() {
    let store = Arc::new(SharedMemory::default());
    let mut nodes = ["a", "a"].map(|name| Node::start(name, &store));
    for node in &mut nodes {
        let name = node.wait("the twin", |notice| match notice {
            Notice::SameName { name } => Some(name.clone()),
            _ => None,
        });
        assert_eq!(name, "a");
    }
    for node in nodes {
        node.cluster.stop();
    }
}

#[test]
fn a_daemon_that_does_not_listen_holds_nothing_up() {
    let store = Arc::new(SharedMemory::default());
    let (mut deaf, other) = (Node::start("a", &store), Node::start("b", &store));
    deaf.cluster.set_rules(vec![budget("x", 0)].into(), 1);
    let unlist = |number: u16| {
        let [high, low] = number.to_be_bytes();
        Change::Unlist { sources: std::net::IpAddr::from([10, 0, high, low]).into() }
    };
    let mut sent = 0;
    while sent < 3000 {
        match other.cluster.publish(unlist(sent)) {
            Ok(()) => sent += 1,
            Err(_) => sleep(Duration::from_millis(10)),
        }
    }
    other.shows("nothing that waits", |status| status.waiting_changes == 0);
    sleep(Duration::from_secs(1));
    // Leases are kept all the while.
    assert!(deaf.leases.packet(0, 1), "{:?}", deaf.cluster.status());
    assert_eq!(deaf.cluster.status().dropped_notices, 0);
    // All changes come once it listens, in order.
    for number in 0..3000 {
        let change = deaf.wait("the next change", |notice| match notice {
            Notice::Change(change) => Some(change.clone()),
            _ => None,
        });
        assert_eq!(change, unlist(number));
    }
    deaf.cluster.stop();
    other.cluster.stop();
}

/// Leases whose counts take longer to read than the time between two ticks: as on a machine that is
/// busy with other things, or with very many keys.
struct SlowLeases(MemoryLeases);

impl Leases for SlowLeases {
    fn now(&self) -> u64 {
        self.0.now()
    }

    fn seen(&self, lease: u32) -> Counts {
        sleep(Duration::from_millis(60));
        self.0.seen(lease)
    }

    fn take_asks(&mut self) -> Vec<Ask> {
        self.0.take_asks()
    }

    fn set_leased(&mut self, key: &TableKey, leases: Option<KeyLeases>) {
        self.0.set_leased(key, leases);
    }

    fn forget_keys(&mut self) {
        self.0.forget_keys();
    }

    fn write(&mut self, lease: u32, words: Words) {
        self.0.write(lease, words);
    }
}

/// A node whose looks at its leases take longer than the time between two hears the store all the
/// same.
#[test]
fn a_node_that_is_always_late_hears_the_store() {
    let store = Arc::new(SharedMemory::default());
    let leases = SlowLeases(MemoryLeases::new(8, Counts::default()));
    let (cluster, _notices) =
        Cluster::start_with(node_settings("a"), Arc::clone(&store), leases).expect("it starts");
    let shared = SharedSet { budgets: vec![budget("x", 0)], ..SharedSet::default() };
    cluster.set_rules(shared, 7);
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let status = cluster.status();
        let granted = status.leases.first().is_some_and(|lease| lease.granted > 0);
        if matches!(status.contact, Contact::Connected(_)) && granted {
            break;
        }
        assert!(Instant::now() < end, "it hears nothing: {status:?}");
        sleep(Duration::from_millis(10));
    }
    cluster.stop();
}
