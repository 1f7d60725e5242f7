//! Nodes that share a limit while things fail one after the other, at random: paths are cut,
//! daemons and the store stand still, die and come back. Every window is held against the bound.

use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context as _, Result, bail, ensure};
use limiter_tests::clock;
use limiter_tests::cluster::load::{Load, SHARE, pause, until};
use limiter_tests::cluster::nodes::Nodes;
use limiter_tests::cluster::redis_server::RedisServer;
use limiter_tests::cluster::traffic::TARGET;
use limiter_tests::cluster::{LIMIT, SHARES, excess_by_source, rules, rules_by_source};
use limiter_tests::limiter::binary;
use limiter_tests::root::require_root;
use rustix::process::Signal;

/// Time that the faults take together, but for the last one's end.
const FAULTS_FOR: Duration = Duration::from_secs(18);

/// Fault of one node, or of the store.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// A node's path to the store is cut: nothing is closed.
    Cut(usize),
    Still(usize),
    /// A daemon dies, and another one begins.
    Dies(usize),
    /// The store stands still: for all nodes.
    StoreStill,
    StoreForgets,
    /// The store dies, and an empty one begins.
    StoreDies,
}

impl Fault {
    fn any(random: &mut fastrand::Rng) -> Self {
        let node = random.usize(0..3);
        match random.u8(0..8) {
            0 | 1 => Self::Cut(node),
            2 | 3 => Self::Still(node),
            4 => Self::Dies(node),
            5 => Self::StoreStill,
            6 => Self::StoreForgets,
            _ => Self::StoreDies,
        }
    }

    /// Packets a second, and at once, that it adds to the bound: docs/cluster.md, "When something
    /// fails".
    const fn adds(self) -> (u64, u64) {
        match self {
            Self::Cut(_) | Self::Still(_) | Self::Dies(_) => (SHARE.rate, SHARE.burst),
            Self::StoreStill => (SHARES.rate, SHARES.burst),
            Self::StoreForgets | Self::StoreDies => (SHARES.rate, SHARES.burst + LIMIT.burst),
        }
    }
}

/// Whatever fails, no window is over the bound, and afterwards all that is within the limit passes.
#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn faults_at_random_hold_the_bound_and_heal() -> Result<()> {
    faults("faults", &rules(""), 0)
}

/// A limit by source holds as well; what shares pass until it has leases comes on top.
#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn faults_at_random_hold_the_bound_of_a_source() -> Result<()> {
    faults("keyfault", &rules_by_source(), excess_by_source())
}

/// A node that takes over 100,000 other rules meanwhile keeps its leases: they have a thread of
/// their own.
#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn a_node_that_reloads_100_000_rules_goes_on() -> Result<()> {
    require_root();
    let mut nodes = Nodes::create("reload", &binary()?, &rules(""), 3, 3)?;
    for node in &mut nodes.nodes {
        node.limiter.options(["--max-rules", "262144"]);
    }
    nodes.start()?;
    let mut load = Load::start(nodes)?;
    load.expect_rate("before", 1000);
    let mut text = rules("");
    for [a, b] in (0_u16..33_334).map(u16::to_be_bytes) {
        for low in 1..=3 {
            let value = format!("10.{a}.{b}.{low}");
            let limit = "rate_limit: {unit: second, requests_per_unit: 5}";
            writeln!(text, "  - {{key: remote_address, value: {value}, {limit}}}")?;
        }
    }
    fs::write(load.nodes.dir.path().join("rules.yaml"), text)?;
    let limiter = &load.nodes.nodes[0].limiter;
    let mut command = Command::new(limiter.binary());
    command.arg("reload").arg("--socket").arg(limiter.socket());
    let mut reload = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    // All of it on the node that is busy.
    load.nodes.route(&[0])?;
    let from = clock::now();
    // Two seconds at least: that the source moves costs 0.35 s of the rate, without a reload too.
    until("the reload ends", || {
        Ok(reload.try_wait()?.is_some() && clock::now() - from >= 2_000_000_000)
    })?;
    // The cores are those of all nodes: two of them gave 84 to 98 %.
    load.expect_since(from, "meanwhile", LIMIT.rate * 80 / 100, LIMIT);
    ensure!(reload.wait()?.success(), "the rules are refused");
    load.expect_rate("afterwards", 1000);
    let report = load.nodes.nodes[0].limiter.json(&["status"])?["rules"].as_u64();
    ensure!(report.is_some_and(|rules| rules > 100_000), "{report:?} rules");
    load.finish()
}

/// Rounds of cuts on a busy machine.
const ROUNDS: usize = 6;

/// Threads that do nothing but calculate, until this is dropped.
struct Busy {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Busy {
    /// Twice as many as there are CPUs.
    fn start() -> Result<Self> {
        let ends = Arc::new(AtomicBool::new(false));
        let count = 2 * std::thread::available_parallelism()?.get();
        let threads = (0..count).map(|_| {
            let ends = Arc::clone(&ends);
            std::thread::spawn(move || while !ends.load(Ordering::Relaxed) {})
        });
        Ok(Self { threads: threads.collect(), ends })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that does nothing cannot have failed.
            drop(thread.join());
        }
    }
}

/// All that is known of nodes that do not come back: what they say, also those before them, how
/// they see the store, and how the store sees them.
fn evidence(load: &Load, store: &RedisServer, before: &[String]) -> String {
    let mut text = before.join("\n");
    for (number, node) in (1..).zip(&load.nodes.nodes) {
        let state = node.limiter.cli(["cluster"]).map(|output| {
            let (out, error) = (&output.stdout, &output.stderr);
            format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(error))
        });
        let way = node.netns().ip(["route", "get", &TARGET.to_string()]);
        let back = load.nodes.receiver().ip(["route", "get", &format!("10.65.{number}.1")]);
        let said = node.limiter.said();
        // Writing to a string cannot fail.
        let _: std::fmt::Result =
            write!(text, "\n--- {}: {state:?}\n{way:?}\n{back:?}\n{said}", node.name);
    }
    text + &format!("\n--- store: {:?}", store.ask(["CLIENT", "LIST"]))
}

/// A node whose path to a store over TCP was cut, and one that was started meanwhile, comes back,
/// also on a machine whose CPUs are all busy. Where one does not, its log is in the failure.
#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn nodes_come_back_on_a_busy_machine() -> Result<()> {
    require_root();
    let mut nodes = Nodes::create("back", &binary()?, &rules_by_source(), 3, 3)?;
    let directory = nodes.dir.path().join("tcp");
    fs::create_dir(&directory)?;
    let target = TARGET.to_string();
    let options = ["--port", "6379", "--bind", &target, "--protected-mode", "no"];
    let store = RedisServer::start_with(nodes.receiver(), &directory, &options)?;
    for node in &nodes.nodes {
        let file = nodes.dir.path().join(format!("{}.yaml", node.name));
        let text = fs::read_to_string(&file)?;
        let (_, rest) = text.split_once('\n').context("one line")?;
        fs::write(&file, format!("redis: {{address: '{target}:6379'}}\n{rest}"))?;
    }
    nodes.start()?;
    let mut load = Load::start(nodes)?;
    // Nothing is said of the bound here: the cuts add shares to it.
    load.on_top(LIMIT.rate, 10 * LIMIT.burst);
    let busy = Busy::start()?;
    let mut said = Vec::new();
    for round in 0..ROUNDS {
        // Answers of the store go nowhere: no connection is closed.
        let cut = |load: &Load, what: &str| -> Result<()> {
            for number in 1..=3 {
                let address = format!("10.65.{number}.1/32");
                load.nodes.receiver().ip(["route", what, "blackhole", &address])?;
            }
            Ok(())
        };
        cut(&load, "add")?;
        if round % 2 == 1 {
            for node in &mut load.nodes.nodes {
                said.push(format!("--- {}, before: {}", node.name, node.limiter.said()));
                node.limiter.kill()?;
                node.limiter.start()?;
            }
        }
        pause(4000);
        cut(&load, "del")?;
        if let Err(error) = load.nodes.wait_for_contact(|| false) {
            drop(busy);
            bail!("round {round}: {error:#}\n{}", evidence(&load, &store, &said));
        }
        eprintln!("round {round}: all are back");
    }
    drop(busy);
    drop(store);
    load.finish()
}

/// Runs nodes under faults, `on_top` packets above the bound also while nothing fails.
/// `LIMITER_SEED` repeats a run.
fn faults(tag: &str, rules: &str, on_top: u64) -> Result<()> {
    require_root();
    let seed = match env::var("LIMITER_SEED") {
        Ok(seed) => seed.parse().context("LIMITER_SEED is no number")?,
        Err(_) => fastrand::u64(..),
    };
    eprintln!("LIMITER_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut nodes = Nodes::create(tag, &binary()?, rules, 3, 3)?;
    let paths: Vec<_> =
        nodes.nodes.iter().map(|node| node.store_path(&nodes.redis)).collect::<Result<_>>()?;
    nodes.start()?;
    let mut load = Load::start(nodes)?;
    load.on_top(0, on_top);
    load.expect_rate("before", 1000);
    let end = Instant::now() + FAULTS_FOR;
    while Instant::now() < end {
        let fault = Fault::any(&mut random);
        let millis = random.u64(100..2500);
        eprintln!("{fault:?} for {millis} ms");
        let (rate, burst) = fault.adds();
        load.on_top(rate, burst + on_top);
        // The source is where it hurts, or anywhere.
        let over = [&[0][..], &[1], &[2], &[0, 1], &[0, 1, 2]][random.usize(0..5)];
        load.nodes.route(over)?;
        match fault {
            Fault::Cut(node) => {
                paths[node].cut(true);
                pause(millis);
                paths[node].cut(false);
            }
            Fault::Still(node) => {
                load.nodes.nodes[node].limiter.signal(Signal::STOP)?;
                pause(millis);
                load.nodes.nodes[node].limiter.signal(Signal::CONT)?;
            }
            Fault::Dies(node) => {
                load.nodes.nodes[node].limiter.kill()?;
                pause(millis);
                load.nodes.nodes[node].limiter.start()?;
            }
            Fault::StoreStill => {
                load.nodes.redis.pause()?;
                pause(millis);
                load.nodes.redis.resume()?;
            }
            Fault::StoreForgets => {
                load.nodes.redis.flush()?;
                pause(millis);
            }
            Fault::StoreDies => {
                load.nodes.redis.kill()?;
                pause(millis);
                load.nodes.redis.restart()?;
            }
        }
        load.nodes.route(&[0, 1, 2])?;
        load.nodes.wait_for_contact(|| false)?;
        load.on_top(0, on_top);
        pause(random.u64(0..1000));
    }
    // Units whose node never heard of them are missing for up to twelve periods.
    pause(3000);
    load.expect_rate("afterwards, over the limit", 1500);
    load.source.send(900);
    pause(1500);
    load.expect("afterwards, within the limit", 3000, 890, LIMIT);
    for node in &load.nodes.nodes {
        until("nothing is wrong", || {
            Ok(node.limiter.json(&["cluster"])?["contact"] == "connected")
        })?;
    }
    load.finish()
}
