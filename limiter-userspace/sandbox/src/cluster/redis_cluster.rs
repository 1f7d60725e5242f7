//! A real Redis Cluster of its own for a run, in one namespace, at an address that the nodes can
//! reach: masters, of which the first holds all data of limiter, and a replica of the first.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::redis_server::RedisServer;
use crate::netns::Netns;

/// Address of the servers.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 66, 0, 1);
/// Port of the first server; the others have the ports after it.
const PORT: u16 = 7001;
const SLOTS: u16 = 16_384;
/// Shards of nodes whose rule file does not set the number.
const SHARDS: u16 = 16;
/// Time within which the servers agree, also on a busy machine.
const AGREED_WITHIN: Duration = Duration::from_mins(1);

/// Servers of a cluster, ended on drop.
#[derive(Debug)]
pub struct RedisCluster {
    servers: Vec<RedisServer>,
    ids: Vec<String>,
}

impl RedisCluster {
    /// Starts three masters and a replica of the first.
    ///
    /// # Errors
    ///
    /// When there is no redis-server, or the servers do not agree within a minute.
    pub fn start(netns: &Arc<Netns>, directory: &Path) -> Result<Self> {
        netns.ip(["address", "add", &format!("{ADDRESS}/32"), "dev", "lo"])?;
        let mut cluster = Self { servers: Vec::new(), ids: Vec::new() };
        for at in 0..4 {
            let directory = directory.join(format!("redis-{at}"));
            std::fs::create_dir(&directory)?;
            let (address, port) = (ADDRESS.to_string(), port(at).to_string());
            let own = ["--cluster-enabled", "yes", "--bind", &address, "--port", &port];
            let net = ["--cluster-require-full-coverage", "no", "--cluster-node-timeout", "2000"];
            // The address is not a loopback address, and only the run's namespaces have a route to
            // it.
            let more = ["--repl-diskless-sync-delay", "0", "--protected-mode", "no"];
            let options = [&own[..], &net, &more].concat();
            let server = RedisServer::start_with(netns, &directory, &options)?;
            cluster.ids.push(server.ask(["CLUSTER", "MYID"])?);
            cluster.servers.push(server);
        }
        cluster.give_slots()?;
        for at in 1..4 {
            let (address, port) = (ADDRESS.to_string(), port(at).to_string());
            cluster.servers[0].ask(["CLUSTER", "MEET", &address, &port])?;
        }
        cluster.until("all know all", |cluster| {
            let mut infos = cluster.servers.iter().map(|server| server.ask(["CLUSTER", "INFO"]));
            infos.try_fold(true, |all, info| {
                let info = info?;
                Ok(all && info.contains("known_nodes:4") && info.contains("state:ok"))
            })
        })?;
        cluster.servers[3].ask(["CLUSTER", "REPLICATE", &cluster.ids[0]])?;
        cluster.until("a replica", |cluster| cluster.is_replica(3))?;
        Ok(cluster)
    }

    /// Gives the first master the slots that limiter uses, and spreads the other slots over all
    /// masters.
    fn give_slots(&self) -> Result<()> {
        let used = self.slots()?;
        let mut lists = vec![Vec::new(); 3];
        for slot in 0..SLOTS {
            let part = usize::from(slot) * 3 / usize::from(SLOTS);
            let at = if used.contains(&slot) { 0 } else { part };
            lists[at].push(slot.to_string());
        }
        for ((server, list), epoch) in self.servers.iter().zip(lists).zip(1..) {
            server.ask(["CLUSTER", "SET-CONFIG-EPOCH", &format!("{epoch}")])?;
            let words = ["CLUSTER".to_owned(), "ADDSLOTS".to_owned()];
            server.ask(words.into_iter().chain(list))?;
        }
        Ok(())
    }

    /// Slots that limiter uses.
    ///
    /// # Errors
    ///
    /// When a server does not answer.
    pub fn slots(&self) -> Result<Vec<u16>> {
        let tags = (0..SHARDS).map(|shard| format!("{shard:04}")).chain(["node".to_owned()]);
        tags.map(|tag| Ok(self.servers[0].ask(["CLUSTER", "KEYSLOT", &tag])?.parse()?)).collect()
    }

    /// Text of `cluster` in a node's rule file: one server, which knows the others.
    pub fn seeds(&self) -> String {
        format!("[{ADDRESS}:{}]", port(1))
    }

    fn is_replica(&self, at: usize) -> Result<bool> {
        Ok(self.servers[at].ask(["INFO", "replication"])?.contains("master_link_status:up"))
    }

    /// True if the replica of the first server has taken over.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub fn has_failed_over(&self) -> Result<bool> {
        Ok(self.servers[3].ask(["INFO", "replication"])?.contains("role:master"))
    }

    /// Moves a slot with its keys from one server to another.
    ///
    /// # Errors
    ///
    /// When a server refuses.
    pub fn reshard(&self, slot: u16, from: usize, to: usize) -> Result<()> {
        let slot = slot.to_string();
        let server = &self.servers[from];
        self.servers[to].ask(["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.ids[from]])?;
        server.ask(["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.ids[to]])?;
        loop {
            let keys = server.ask(["CLUSTER", "GETKEYSINSLOT", &slot, "100"])?;
            if keys.is_empty() {
                break;
            }
            let (address, port) = (ADDRESS.to_string(), port(to).to_string());
            let words = ["MIGRATE", &address, &port, "", "0", "5000", "KEYS"];
            server.ask(words.into_iter().chain(keys.lines()))?;
        }
        for at in [to, from] {
            self.servers[at].ask(["CLUSTER", "SETSLOT", &slot, "NODE", &self.ids[to]])?;
        }
        Ok(())
    }

    /// Ends the first server with SIGKILL.
    ///
    /// # Errors
    ///
    /// When the system does not report its end.
    pub fn kill_first(&mut self) -> Result<()> {
        self.servers.first_mut().context("no server")?.kill()
    }

    fn until(&self, what: &str, holds: impl Fn(&Self) -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + AGREED_WITHIN;
        while !holds(self)? {
            ensure!(Instant::now() < deadline, "not within {AGREED_WITHIN:?}: {what}");
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

fn port(at: usize) -> u16 {
    PORT + u16::try_from(at).unwrap_or(0)
}
