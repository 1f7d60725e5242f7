//! Shards on servers whose clocks differ, and a shard that moves to a server whose clock is behind.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use limiter_cluster::membership::{Membership, Met};
use limiter_cluster::memory::SharedMemory;
use limiter_cluster::store::{Answers, Batch, Store, StoreError, WindowBatch};
use limiter_cluster::{Cluster, NodeSettings, Notices};
use limiter_common::wire::{Ask, KeyLeases, TableKey};
use limiter_datapath::fake::MemoryLeases;
use limiter_sharing::key::Words;
use limiter_sharing::leases::{Counts, Leases, monotonic};
use limiter_sharing::{SharedLimit, SharedPlace, SharedRule, SharedSet, SharedTerms};

use crate::node::{Node, budget, node_settings};
use crate::simulator::scene::settings;

/// Microseconds by which the clock of each shard is ahead of that of the one before.
const APART: i64 = 7_000_000;

/// A store whose shards have clocks of their own.
#[derive(Default)]
struct Clocks {
    memory: SharedMemory,
    /// Microseconds by which all of them were set forward.
    set: AtomicI64,
}

impl Clocks {
    fn now(&self, shard: u16) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        let ahead = i64::from(shard) * APART + self.set.load(Ordering::Relaxed);
        (since.as_micros() as u64).saturating_add_signed(ahead)
    }
}

impl Store for Clocks {
    async fn exchange(&self, batch: &Batch) -> Result<Answers, StoreError> {
        self.memory.lock().exchange_at(self.now(batch.shard), batch)
    }

    async fn windows(&self, batch: &WindowBatch) -> Result<Answers, StoreError> {
        self.memory.lock().windows_at(self.now(batch.shard), batch)
    }

    async fn meet(&self, membership: &Membership) -> Result<Met, StoreError> {
        self.memory.lock().meet_at(self.now(0), membership)
    }

    fn is_ready(&self) -> bool {
        true
    }
}

/// A call's end is a time of its own server's clock: none is taken for late by another one's.
#[test]
fn shards_on_servers_whose_clocks_differ_have_their_leases() {
    let store = Arc::new(Clocks::default());
    let leases = MemoryLeases::new(16, Counts::default());
    let (cluster, notices) =
        Cluster::start_with(node_settings("a"), Arc::clone(&store), leases.clone())
            .expect("it starts");
    let node = Node { cluster, notices, leases };
    let rules: Vec<_> = (0..16).map(|at| budget(&format!("customer-{at}"), at)).collect();
    node.cluster.set_rules(rules.into(), 1);
    let mut passed = [0; 16];
    let (begin, mut offered) = (Instant::now(), 0);
    while begin.elapsed() < Duration::from_secs(4) {
        // 500 a second of 1000.
        while offered < begin.elapsed().as_millis() / 2 {
            offered += 1;
            for (lease, passed) in (0..).zip(&mut passed) {
                *passed += u128::from(node.leases.packet(lease, 1));
            }
        }
        sleep(Duration::from_millis(1));
    }
    println!("{passed:?} of {offered}");
    assert!(passed.iter().all(|passed| *passed >= offered * 8 / 10), "{passed:?} of {offered}");
    node.cluster.stop();
}

/// Leases of a node that asks for keys when it is asked to, and shows which it was informed of.
#[derive(Clone, Default)]
struct Keys {
    asks: Arc<Mutex<Vec<Ask>>>,
    entries: Arc<Mutex<HashMap<TableKey, KeyLeases>>>,
}

impl Leases for Keys {
    fn now(&self) -> u64 {
        monotonic()
    }

    fn seen(&self, _lease: u32) -> Counts {
        Counts::default()
    }

    fn take_asks(&mut self) -> Vec<Ask> {
        std::mem::take(&mut self.asks.lock().expect("nobody panicked"))
    }

    fn set_leased(&mut self, key: &TableKey, leases: Option<KeyLeases>) {
        let mut entries = self.entries.lock().expect("nobody panicked");
        match leases {
            Some(leases) => drop(entries.insert(*key, leases)),
            None => drop(entries.remove(key)),
        }
    }

    fn forget_keys(&mut self) {}

    fn write(&mut self, _lease: u32, _words: Words) {}
}

#[test]
fn keys_of_a_shard_whose_clock_goes_back_are_heard_of() {
    let store = Arc::new(Clocks::default());
    let slot = 5;
    let start = |name: &str| -> (Cluster, Notices, Keys) {
        let of_node = NodeSettings { shards: 1, ..node_settings(name) };
        let keys = Keys::default();
        let (cluster, notices) =
            Cluster::start_with(of_node, Arc::clone(&store), keys.clone()).expect("it starts");
        let terms = SharedTerms::Bucket(SharedLimit::new(settings(2)).expect("good"));
        let limits = vec![SharedPlace { place: 0, tag: 1, terms }];
        let rule = SharedRule { name: "a rule".into(), slot, table: 77, limits };
        cluster.set_rules(SharedSet { rules: vec![rule], ..SharedSet::default() }, 1);
        (cluster, notices, keys)
    };
    let [(a, _a, here), (b, _b, there)] = ["a", "b"].map(start);
    let is_heard_of = |vlan: u16| {
        let key = TableKey { table: 77, vlan, ..TableKey::EMPTY };
        let begin = Instant::now();
        while here.entries.lock().expect("nobody panicked").get(&key) != Some(&KeyLeases::ELSEWHERE)
        {
            // Its packets go on, and ask again.
            there.asks.lock().expect("nobody panicked").push(Ask { key, slot, reserved: 0 });
            assert!(begin.elapsed() < Duration::from_secs(20), "key {vlan} is not heard of");
            sleep(Duration::from_millis(50));
        }
        println!("key {vlan} was heard of after {:?}", begin.elapsed());
    };
    is_heard_of(1);
    store.set.store(-3_600_000_000, Ordering::Relaxed);
    // A period, in which the node asks by the clock before.
    sleep(Duration::from_millis(500));
    is_heard_of(2);
    store.set.store(0, Ordering::Relaxed);
    sleep(Duration::from_millis(500));
    is_heard_of(3);
    // A server that has nothing of the list, and is behind.
    store.memory.lock().flush();
    store.set.store(-7_200_000_000, Ordering::Relaxed);
    sleep(Duration::from_millis(500));
    is_heard_of(4);
    a.stop();
    b.stop();
}
