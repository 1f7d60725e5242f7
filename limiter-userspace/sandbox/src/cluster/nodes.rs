//! Nodes that share limits, each a network namespace with a daemon of its own, and one source whose
//! packets are spread over them by ECMP: a sender with a way through each node, and a receiver
//! behind them all.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::redis_server::RedisServer;
use super::store_path::StorePath;
use super::traffic::{SOURCE, TARGET};
use crate::bpffs::Bpffs;
use crate::limiter::Limiter;
use crate::netns::Netns;
use crate::testbed::sweep_once;
use crate::work_dir::WorkDir;
use crate::{sweep, veth};

/// Interface of a node at which packets come in, where the limiter sits.
pub const INSIDE: &str = "in0";

/// The other interface of a node.
const OUTSIDE: &str = "out0";

/// Time within which nodes get in contact with the store: pauses between attempts last up to 5 s.
pub const CONTACT_WITHIN: Duration = Duration::from_mins(1);

/// Most nodes, because there are this many networks.
pub const MOST: u8 = 16;

/// A node.
#[derive(Debug)]
pub struct Node {
    /// Name of the node, among the nodes.
    pub name: String,
    /// Daemon of the node, and the program on [`INSIDE`].
    pub limiter: Limiter,
    netns: Arc<Netns>,
    /// Interface of the sender towards the node.
    way: String,
    /// Address of the node on that interface.
    next: String,
    /// Path at which the node's daemon finds the store's socket: a link to it.
    store: PathBuf,
    has_budgets: bool,
}

impl Node {
    /// The node's namespace.
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// Puts a connection that can be cut between the node and the store. The node's daemon must not
    /// run yet.
    ///
    /// # Errors
    ///
    /// When the connection cannot be made.
    pub fn store_path(&self, redis: &RedisServer) -> Result<StorePath> {
        StorePath::between(&self.store, &redis.socket())
    }

    /// Returns true if all leases of the node decide.
    ///
    /// # Errors
    ///
    /// When the daemon does not answer.
    pub fn in_contact(&self) -> Result<bool> {
        let output = self.limiter.json(&["cluster"])?;
        let leases = output["leases"].as_array().context("`limiter cluster`: no leases")?;
        let decides = |lease: &Value| lease["in_contact"] == true;
        // A limit by source has a lease only while some source needs it.
        let waits = self.has_budgets && leases.is_empty();
        Ok(output["contact"] == "connected" && !waits && leases.iter().all(decides))
    }
}

/// Nodes, their store and the ends of their traffic. Fields are dropped in this order.
#[derive(Debug)]
pub struct Nodes {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// Their store.
    pub redis: RedisServer,
    bpffs: Bpffs,
    sender: Arc<Netns>,
    receiver: Arc<Netns>,
    /// Directory for all other files.
    pub dir: WorkDir,
}

impl Nodes {
    /// Builds `count` nodes under the rules in `rules` (YAML text) and starts no daemon yet. A
    /// daemon counts with at least `floor` nodes. The source is spread over all nodes.
    ///
    /// # Errors
    ///
    /// Without root, `ip` or redis-server. What was made before the error is removed.
    pub fn create(tag: &str, binary: &Path, rules: &str, count: u8, floor: u8) -> Result<Self> {
        ensure!((1..=MOST).contains(&count), "write 1 to {MOST} nodes");
        sweep_once();
        let dir = WorkDir::create(tag)?;
        let rules = dir.write("rules.yaml", rules)?;
        let bpffs = Bpffs::mount(dir.path().join("bpf"))?;
        let sender = Arc::new(Netns::create(&format!("{tag}-send"))?);
        let receiver = Arc::new(Netns::create(&format!("{tag}-recv"))?);
        for (netns, address) in [(&sender, SOURCE), (&receiver, TARGET)] {
            netns.ip(["address", "add", &format!("{address}/32"), "dev", "lo"])?;
            // Hashes addresses and ports, so that one source takes all ways.
            netns.sysctl("ipv4/fib_multipath_hash_policy", "1")?;
            netns.sysctl("ipv4/conf/all/rp_filter", "0")?;
            netns.sysctl("ipv4/conf/default/rp_filter", "0")?;
        }
        let redis = RedisServer::start(&receiver, dir.path())?;
        let mut built = Self { nodes: Vec::new(), redis, bpffs, sender, receiver, dir };
        for n in 1..=count {
            let node = built.node(tag, binary, &rules, n, floor)?;
            built.nodes.push(node);
        }
        built.route(&(0..usize::from(count)).collect::<Vec<_>>())?;
        Ok(built)
    }

    fn node(&self, tag: &str, binary: &Path, rules: &Path, n: u8, floor: u8) -> Result<Node> {
        let netns = Arc::new(Netns::create(&format!("{tag}-{n}"))?);
        let (way, back) = (format!("node{n}"), format!("node{n}"));
        for scope in ["all", "default"] {
            netns.sysctl(&format!("ipv4/conf/{scope}/rp_filter"), "0")?;
        }
        netns.sysctl("ipv4/ip_forward", "1")?;
        veth::lay((&self.sender, &way), (&netns, INSIDE))?;
        veth::lay((&netns, OUTSIDE), (&self.receiver, &back))?;
        let join = |netns: &Netns, interface: &str, address: String| {
            netns.ip(["address", "add", &format!("{address}/30"), "dev", interface])
        };
        join(&self.sender, &way, format!("10.64.{n}.1"))?;
        join(&netns, INSIDE, format!("10.64.{n}.2"))?;
        join(&netns, OUTSIDE, format!("10.65.{n}.1"))?;
        join(&self.receiver, &back, format!("10.65.{n}.2"))?;
        let next = format!("10.64.{n}.2");
        let behind = format!("10.65.{n}.2");
        introduce((&self.sender, &way), (&netns, INSIDE), &next)?;
        introduce((&netns, OUTSIDE), (&self.receiver, &back), &behind)?;
        // Answers come from a store at the receiver.
        introduce((&self.receiver, &back), (&netns, OUTSIDE), &format!("10.65.{n}.1"))?;
        netns.ip(["route", "add", &TARGET.to_string(), "via", &behind])?;
        let name = format!("node-{n}");
        let store = self.dir.path().join(format!("{name}.redis"));
        std::os::unix::fs::symlink(self.redis.socket(), &store)?;
        let text =
            format!("redis: {{address: {}}}\nnode: {name}\nnodes: {floor}\n", store.display());
        let cluster = self.dir.write(&format!("{name}.yaml"), text)?;
        let has_budgets = std::fs::read_to_string(rules)?.contains("budgets:");
        let (dir, pins) = (self.dir.path(), self.bpffs.path());
        let mut limiter = Limiter::within(&netns, binary.to_owned(), rules, INSIDE, dir, pins);
        limiter.apart(&name).options(["--cluster", &cluster.display().to_string()]);
        Ok(Node { name, limiter, netns, way, next, store, has_budgets })
    }

    /// Spreads the packets for the target over these nodes and sends none to the others.
    ///
    /// # Errors
    ///
    /// When there is no such node, or `ip` fails.
    pub fn route(&self, over: &[usize]) -> Result<()> {
        let (source, target) = (SOURCE.to_string(), TARGET.to_string());
        let mut words = vec!["route".to_owned(), "replace".into(), target, "src".into(), source];
        for n in over {
            let node = self.nodes.get(*n).context("no such node")?;
            words.extend(["nexthop".into(), "via".into(), node.next.clone()]);
            words.extend(["dev".into(), node.way.clone()]);
        }
        self.sender.ip(words).map(drop)
    }

    /// Namespace of the source.
    pub fn sender(&self) -> &Arc<Netns> {
        &self.sender
    }

    /// Namespace of the target.
    pub fn receiver(&self) -> &Arc<Netns> {
        &self.receiver
    }

    /// Starts all daemons and waits until their leases decide.
    ///
    /// # Errors
    ///
    /// When a daemon does not start or has no contact within a minute.
    pub fn start(&mut self) -> Result<()> {
        for node in &mut self.nodes {
            node.limiter.start().with_context(|| format!("the daemon of {}", node.name))?;
        }
        self.wait_for_contact(|| false)
    }

    /// Waits until the leases of all nodes with a running daemon decide, or until `stop` returns
    /// true.
    ///
    /// # Errors
    ///
    /// When the leases do not decide within a minute.
    pub fn wait_for_contact(&self, stop: impl Fn() -> bool) -> Result<()> {
        let deadline = Instant::now() + CONTACT_WITHIN;
        for node in self.nodes.iter().filter(|node| node.limiter.pid().is_some()) {
            while !node.in_contact()? && !stop() {
                let name = &node.name;
                ensure!(
                    Instant::now() < deadline,
                    "{name} has no contact after {CONTACT_WITHIN:?}: {}",
                    node.limiter.ok(["cluster"])?
                );
                thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    /// Packets that a node has seen.
    ///
    /// # Errors
    ///
    /// When its daemon does not answer.
    pub fn seen(&self, node: usize) -> Result<u64> {
        let node = self.nodes.get(node).context("no such node")?;
        let stats = node.limiter.json(&["stats"])?;
        stats.pointer("/seen/packets").and_then(Value::as_u64).context("`limiter stats`: no count")
    }

    /// Takes everything down and checks that nothing is left.
    ///
    /// # Errors
    ///
    /// Names what is left, or the daemon that did not end in order.
    pub fn close(mut self) -> Result<()> {
        let mut names = vec![self.sender.name().to_owned(), self.receiver.name().to_owned()];
        let dir = self.dir.path().to_owned();
        let mut closed = Ok(());
        for node in self.nodes.drain(..) {
            names.push(node.netns.name().to_owned());
            closed = closed.and(node.limiter.close());
        }
        drop(self);
        closed.and(sweep::check_gone(&names, &dir))
    }
}

/// Tells a near end the hardware address of `address` at a far end.
fn introduce(near: (&Netns, &str), far: (&Netns, &str), address: &str) -> Result<()> {
    let link = far.0.link(far.1)?;
    let mac = link["address"].as_str().context("`ip link show`: no address")?.to_owned();
    let entry = ["lladdr", &mac, "dev", near.1, "nud", "permanent"];
    near.0.ip(["neighbour", "replace", address].into_iter().chain(entry)).map(drop)
}
