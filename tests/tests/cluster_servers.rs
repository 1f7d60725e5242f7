//! Nodes whose store is a Redis Cluster, end to end: real daemons, four real servers, of which
//! slots move and one dies, and one source that is spread over the nodes. Every window is held
//! against the bound.

use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::clock;
use limiter_tests::cluster::load::Load;
use limiter_tests::cluster::nodes::Nodes;
use limiter_tests::cluster::redis_cluster::{ADDRESS, RedisCluster};
use limiter_tests::cluster::{LIMIT, SHARES, rules};
use limiter_tests::limiter::binary;
use limiter_tests::root::require_root;

#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn slots_move_and_a_server_dies_under_load() -> Result<()> {
    require_root();
    let mut nodes = Nodes::create("slots", &binary()?, &rules(""), 3, 3)?;
    let mut servers = RedisCluster::start(nodes.receiver(), nodes.dir.path())?;
    for (node, n) in nodes.nodes.iter().zip(1..) {
        node.netns().ip(["route", "add", &ADDRESS.to_string(), "via", &format!("10.65.{n}.2")])?;
        let file = nodes.dir.path().join(format!("{}.yaml", node.name));
        let text = fs::read_to_string(&file)?;
        let (_, rest) = text.split_once('\n').context("one line")?;
        fs::write(&file, format!("redis: {{cluster: {}}}\n{rest}", servers.seeds()))?;
    }
    nodes.start()?;
    let output = nodes.nodes[0].limiter.json(&["cluster"])?;
    let shown = output["servers"].as_array().context("no servers")?;
    ensure!(shown.len() == 3, "three servers have slots: {output}");
    let mut load = Load::start(nodes)?;
    load.expect_rate("before", 1000);

    let (slots, from) = (servers.slots()?, clock::now());
    for (slot, to) in slots.iter().zip([1, 2].into_iter().cycle()) {
        servers.reshard(*slot, 0, to)?;
        servers.reshard(*slot, to, 3 - to)?;
        servers.reshard(*slot, 3 - to, 0)?;
    }
    thread::sleep(Duration::from_secs(1));
    // Units that a failed call reported are missing for a while, on each node, with each move.
    load.expect_since(from, "while slots move", LIMIT.rate * 6 / 10, LIMIT);

    // Without the first server the nodes have their shares; the latest grants may be forgotten.
    load.on_top(SHARES.rate, SHARES.burst + LIMIT.burst);
    servers.kill_first()?;
    let warned = |load: &Load| {
        let status = load.nodes.nodes[0].limiter.json(&["status"])?;
        anyhow::Ok(status["warnings"].to_string().contains("one of the servers of the store"))
    };
    let mut was_warned = false;
    while !servers.has_failed_over()? {
        was_warned = was_warned || warned(&load)?;
        thread::sleep(Duration::from_millis(50));
    }
    ensure!(was_warned, "a server was away, and that was not reported");
    load.nodes.wait_for_contact(|| false)?;
    load.on_top(0, 0);
    load.expect_rate("after the replica took over", 1500);
    let table = load.nodes.nodes[0].limiter.ok(["cluster"])?;
    ensure!(table.contains("SERVER") && table.contains(&ADDRESS.to_string()), "{table}");
    // Servers hold their namespace.
    drop(servers);
    load.finish()
}
