//! A real Redis Cluster of a test's own, on free ports of the loopback: its servers, whose slots
//! are where the test wants them, ended by the test.

use std::net::TcpListener;
use std::thread::sleep;
use std::time::{Duration, Instant};

use limiter_cluster::redis::{Address, RedisSettings, Servers};
use tokio::runtime::Runtime;

use crate::server::{Admin, Server};

/// Hash tags of the keys of nodes with four shards.
pub(crate) const TAGS: [&str; 5] = ["0000", "0001", "0002", "0003", "node"];
const SLOTS: u16 = 16_384;

/// A server of the cluster.
pub(crate) struct Shard {
    pub(crate) server: Server,
    pub(crate) admin: Admin,
    pub(crate) port: u16,
    pub(crate) id: String,
}

pub(crate) struct Shards {
    pub(crate) runtime: Runtime,
    pub(crate) servers: Vec<Shard>,
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound").port()
}

impl Shards {
    /// Starts a master for each list of tags, which has their slots, and its part of all others;
    /// and as many servers without slots as there are `more`. `None` where there is no
    /// redis-server.
    pub(crate) fn start(tags: &[&[&str]], more: usize, options: &[&str]) -> Option<Self> {
        Self::start_at("--port", tags, more, options)
    }

    /// Starts a master for each list of tags whose one port is for TLS.
    pub(crate) fn start_tls(tags: &[&[&str]], options: &[&str]) -> Option<Self> {
        Self::start_at("--tls-port", tags, 0, options)
    }

    fn start_at(option: &str, tags: &[&[&str]], more: usize, options: &[&str]) -> Option<Self> {
        let runtime = crate::server::runtime();
        let mut servers = Vec::new();
        // A test beside this one may take a port in the meantime.
        let mut attempts = 10;
        while servers.len() < tags.len() + more {
            let (port, bus) = (free_port().to_string(), free_port().to_string());
            let own = ["--cluster-enabled", "yes", "--bind", "127.0.0.1", option, &port];
            let net = ["--cluster-port", &bus, "--cluster-require-full-coverage", "no"];
            let server = Server::start(&[&own[..], &net, options].concat())?;
            let mut admin = match server.try_admin(&runtime) {
                Ok(admin) => admin,
                Err(error) => {
                    attempts -= 1;
                    assert!(attempts > 0, "no server answers: {error}");
                    continue;
                }
            };
            let id: String = runtime.block_on(admin.ask(&["CLUSTER", "MYID"]));
            servers.push((bus, Shard { server, admin, port: port.parse().expect("a port"), id }));
        }
        let (buses, servers): (Vec<_>, Vec<_>) = servers.into_iter().unzip();
        let mut shards = Self { runtime, servers };
        shards.give_slots(tags);
        for (at, bus) in buses.iter().enumerate().skip(1) {
            let port = shards.servers[at].port.to_string();
            shards.ask::<String>(0, &["CLUSTER", "MEET", "127.0.0.1", &port, bus]);
        }
        shards.until("a cluster", |shards| {
            (0..shards.servers.len()).all(|at| {
                let info: String = shards.ask(at, &["CLUSTER", "INFO"]);
                let known = format!("cluster_known_nodes:{}\r", shards.servers.len());
                let all = format!("cluster_slots_ok:{SLOTS}\r");
                info.contains("cluster_state:ok") && info.contains(&known) && info.contains(&all)
            })
        });
        Some(shards)
    }

    fn give_slots(&mut self, tags: &[&[&str]]) {
        let mut lists: Vec<Vec<String>> = vec![Vec::new(); tags.len()];
        let slots: Vec<Vec<u16>> =
            tags.iter().map(|tags| tags.iter().map(|tag| self.slot(tag)).collect()).collect();
        for slot in 0..SLOTS {
            let chosen = slots.iter().position(|slots| slots.contains(&slot));
            let part = usize::from(slot) * tags.len() / usize::from(SLOTS);
            lists[chosen.unwrap_or(part)].push(slot.to_string());
        }
        for (at, list) in lists.iter().enumerate() {
            let epoch = (at + 1).to_string();
            self.ask::<String>(at, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch]);
            let words = ["CLUSTER", "ADDSLOTS"].into_iter().chain(list.iter().map(|slot| &**slot));
            self.ask::<String>(at, &words.collect::<Vec<_>>());
        }
    }

    pub(crate) fn ask<T: redis::FromRedisValue>(&mut self, at: usize, words: &[&str]) -> T {
        self.runtime.block_on(self.servers[at].admin.ask(words))
    }

    /// Slot of a hash tag, as a server has it.
    pub(crate) fn slot(&mut self, tag: &str) -> u16 {
        self.ask(0, &["CLUSTER", "KEYSLOT", tag])
    }

    pub(crate) fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(30);
        while !holds(self) {
            assert!(Instant::now() < end, "not within 30 s: {what}");
            sleep(Duration::from_millis(20));
        }
    }

    /// The server that has a slot, by its own word.
    pub(crate) fn owner(&mut self, slot: u16) -> usize {
        let has = |range: &str| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let ends = [first, last].map(|end| end.parse::<u16>().ok());
            matches!(ends, [Some(first), Some(last)] if (first..=last).contains(&slot))
        };
        let owner = (0..self.servers.len()).find(|at| {
            let nodes: String = self.ask(*at, &["CLUSTER", "NODES"]);
            let own = nodes.lines().find(|line| line.contains("myself"));
            own.expect("itself").split(' ').skip(8).any(has)
        });
        owner.expect("somebody has it")
    }

    /// Opens a slot: it is on its way from one server to another.
    pub(crate) fn open(&mut self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        let ids = [from, to].map(|at| self.servers[at].id.clone());
        self.ask::<String>(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[0]]);
        self.ask::<String>(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids[1]]);
    }

    /// Moves at most so many keys of an open slot; how many there were.
    pub(crate) fn migrate(&mut self, slot: u16, from: usize, to: usize, most: usize) -> usize {
        let (slot, most) = (slot.to_string(), most.to_string());
        let keys: Vec<String> = self.ask(from, &["CLUSTER", "GETKEYSINSLOT", &slot, &most]);
        let port = self.servers[to].port.to_string();
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        words.extend(keys.iter().map(String::as_str));
        if !keys.is_empty() {
            self.ask::<String>(from, &words);
        }
        keys.len()
    }

    /// Gives an open slot that has no more keys to its new server.
    pub(crate) fn close(&mut self, slot: u16, from: usize, to: usize) {
        let (slot, id) = (slot.to_string(), self.servers[to].id.clone());
        for at in [to, from] {
            self.ask::<String>(at, &["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
        }
    }

    /// Moves a slot with all that is in it.
    pub(crate) fn reshard(&mut self, slot: u16, from: usize, to: usize) {
        self.open(slot, from, to);
        while self.migrate(slot, from, to, 100) > 0 {}
        self.close(slot, from, to);
    }

    /// Errors with this code that a server answered so far.
    pub(crate) fn errors(&mut self, at: usize, code: &str) -> u64 {
        let stats: String = self.ask(at, &["INFO", "errorstats"]);
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("errorstat_{code}:")));
        line.map_or(0, |line| {
            line.trim().strip_prefix("count=").expect("a count").parse().expect("a number")
        })
    }

    /// Makes a server the replica of another, and waits until it has all of it.
    pub(crate) fn replicate(&mut self, at: usize, of: usize) {
        let id = self.servers[of].id.clone();
        self.ask::<String>(at, &["CLUSTER", "REPLICATE", &id]);
        self.until("a replica", |shards| {
            let info: String = shards.ask(at, &["INFO", "replication"]);
            info.contains("master_link_status:up")
        });
        // The master is to know, too: who has no replica it knows of would not give way to one.
        self.until("a replica that is known", |shards| {
            let nodes: String = shards.ask(of, &["CLUSTER", "NODES"]);
            nodes.lines().any(|line| line.contains("slave") && line.contains(&id))
        });
    }

    /// Settings of a store that gets these servers.
    pub(crate) fn settings(&self, seeds: &[usize]) -> RedisSettings {
        let seed = |at: &usize| Address::Tcp {
            host: "127.0.0.1".to_owned(),
            port: self.servers[*at].port,
        };
        let servers = Servers::Cluster(seeds.iter().map(seed).collect());
        RedisSettings { servers, ..self.servers[0].server.settings() }
    }
}
