//! Nodes that share a limit, end to end: real daemons, a real redis-server, and one source that is
//! spread over them by ECMP. Every window of every run is held against the bound.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::cluster::load::{Load, SHARE, pause, three, unit_lives, until};
use limiter_tests::cluster::nodes::{Node, Nodes};
use limiter_tests::cluster::traffic::{Arrivals, SOURCE, Source};
use limiter_tests::cluster::{LIMIT, SHARES, excess_by_source, rules, rules_by_source};
use limiter_tests::limiter::binary;
use limiter_tests::root::require_root;
use limiter_tests::sweep;
use limiter_tests::work_dir::WorkDir;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn program() -> Result<PathBuf> {
    limiter_tests::limiter::sandbox()
}

fn warns(node: &Node, words: &str) -> Result<bool> {
    let status = node.limiter.json(&["status"])?;
    let warnings = status["warnings"].as_array().context("`limiter status`: no warnings")?;
    Ok(warnings.iter().filter_map(Value::as_str).any(|warning| warning.contains(words)))
}

/// The value of a metric that is a whole number without labels.
fn metric(node: &Node, name: &str) -> Result<u64> {
    let mut stream = UnixStream::connect(node.limiter.socket())?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: limiter\r\nConnection: close\r\n\r\n")?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(value.with_context(|| format!("no {name} in {page}"))?.trim().parse()?)
}

#[test]
fn the_sandbox_of_nodes_passes() -> Result<()> {
    require_root();
    let mut command = Command::new(program()?);
    command.arg("--limiter").arg(binary()?).args(["--cluster", "3", "--duration", "8", "--json"]);
    let output = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let report = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{said}{report}");
    ensure!(said.contains("Cleaned up"), "{said}");
    let report: Value = serde_json::from_str(&report).context("not one JSON document")?;
    ensure!(report["pass"] == true, "{report}");
    let phases = report["phases"].as_array().context("no phases")?;
    ensure!(phases.len() == 5 && phases.iter().all(|phase| phase["pass"] == true), "{report}");
    // All three had a good part of the one source.
    let seen = report["seen"].as_array().context("nobody saw anything")?;
    let seen: Vec<u64> = seen.iter().filter_map(Value::as_u64).collect();
    let all: u64 = seen.iter().sum();
    ensure!(seen.len() == 3 && seen.iter().all(|seen| seen * 10 > all), "{report}");
    Ok(())
}

#[test]
fn a_signal_ends_the_sandbox_of_nodes_in_order() -> Result<()> {
    require_root();
    let mut command = Command::new(program()?);
    command.arg("--limiter").arg(binary()?).args(["--cluster", "2", "--json"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let pid = Pid::from_child(&child);
    let mut stderr = BufReader::new(child.stderr.take().context("no standard error")?);
    let mut said = String::new();
    while !said.contains("offered") {
        ensure!(stderr.read_line(&mut said)? > 0, "it ended: {said}");
    }
    kill_process(pid, Signal::INT)?;
    stderr.read_to_string(&mut said)?;
    let output = child.wait_with_output()?;
    ensure!(output.status.code() == Some(130), "exit code {:?}: {said}", output.status.code());
    ensure!(output.stdout.is_empty() && said.contains("Cleaned up"), "{said}");
    sweep::check_none_of(pid.as_raw_nonzero().get().unsigned_abs())
}

#[test]
fn without_redis_the_sandbox_of_nodes_cannot_run() -> Result<()> {
    require_root();
    // A path that has `ip` and nothing else.
    let dir = WorkDir::create("noredis")?;
    let paths = env::var_os("PATH").context("no PATH")?;
    let ip = env::split_paths(&paths).map(|path| path.join("ip")).find(|ip| ip.is_file());
    std::os::unix::fs::symlink(ip.context("no ip")?, dir.path().join("ip"))?;
    let mut command = Command::new(program()?);
    command.arg("--limiter").arg(binary()?).args(["--cluster", "3"]).env("PATH", dir.path());
    let output = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(2), "exit code {:?}: {said}", output.status.code());
    ensure!(said.contains("install the package redis-server"), "{said}");
    Ok(())
}

/// All nodes lose their store, are notified, and go on with their shares; the bound holds before,
/// meanwhile and after.
#[test]
fn a_store_that_dies_leaves_the_shares_and_is_reported() -> Result<()> {
    let mut load = Load::start(three("store")?)?;
    load.expect_rate("with the store", 1000);

    load.on_top(SHARES.rate, SHARES.burst);
    load.nodes.redis.kill()?;
    pause(unit_lives());
    load.expect("without the store", 1500, SHARES.rate * 9 / 10, SHARES);
    for node in &load.nodes.nodes {
        until("the loss is reported", || warns(node, "no contact to the other nodes"))?;
        node.limiter.wait_until_logged("no contact to the other nodes")?;
        ensure!(metric(node, "limiter_cluster_connected")? == 0, "{}", node.name);
        ensure!(node.limiter.json(&["cluster"])?["contact"] == "cut_off", "{}", node.name);
    }

    load.nodes.redis.restart()?;
    load.nodes.wait_for_contact(|| false)?;
    // An empty store begins with an empty account where no lease is out, so nothing is on top.
    load.on_top(0, 0);
    load.expect_rate("with a new store", 1500);
    for node in &load.nodes.nodes {
        until("the end is reported", || Ok(!warns(node, "no contact to the other nodes")?))?;
        node.limiter.wait_until_logged("contact to the other nodes again")?;
        ensure!(metric(node, "limiter_cluster_connected")? == 1, "{}", node.name);
    }

    // Leases that are out when the store forgets them are no more than the burst.
    load.on_top(0, LIMIT.burst);
    load.nodes.redis.flush()?;
    pause(unit_lives());
    load.on_top(0, 0);
    load.expect_rate("after the store forgot", 1500);
    load.finish()
}

/// A daemon that stands still: its node's leases end by themselves, and the share holds.
#[test]
fn leases_of_a_daemon_that_stands_still_end() -> Result<()> {
    let mut load = Load::start(three("still")?)?;
    load.expect_rate("all nodes", 1000);

    load.on_top(SHARE.rate, SHARE.burst);
    load.nodes.nodes[0].limiter.signal(Signal::STOP)?;
    load.nodes.route(&[0])?;
    pause(unit_lives());
    load.expect("the share of one", 1500, SHARE.rate * 9 / 10, SHARE);
    load.nodes.nodes[0].limiter.signal(Signal::CONT)?;
    load.nodes.route(&[0, 1, 2])?;
    load.nodes.wait_for_contact(|| false)?;
    load.on_top(0, 0);
    load.expect_rate("all nodes again", 1500);
    load.finish()
}

/// A node joins and another dies under traffic: the others hear of it, and all are held as one.
#[test]
fn nodes_join_and_die_under_traffic() -> Result<()> {
    require_root();
    let mut nodes = Nodes::create("join", &binary()?, &rules(""), 3, 2)?;
    for node in &mut nodes.nodes[..2] {
        node.limiter.start()?;
    }
    nodes.wait_for_contact(|| false)?;
    nodes.route(&[0, 1])?;
    let count =
        |nodes: &Nodes| anyhow::Ok(nodes.nodes[0].limiter.json(&["cluster"])?["count"] == 3);
    ensure!(!count(&nodes)?, "there are but two");
    let mut load = Load::start(nodes)?;
    load.expect_rate("two nodes", 1000);

    load.nodes.nodes[2].limiter.start()?;
    load.nodes.wait_for_contact(|| false)?;
    load.nodes.route(&[0, 1, 2])?;
    until("the third is heard of", || count(&load.nodes))?;
    load.expect_rate("three nodes", 1500);
    let first = &load.nodes.nodes[0].limiter;
    first.wait_until_logged("limits are shared by another number of nodes")?;
    ensure!(load.nodes.seen(2)? > 0, "the third saw nothing");

    // The program stays, as its daemon may come again, and passes the share of one.
    load.on_top(SHARE.rate, SHARE.burst);
    load.nodes.nodes[2].limiter.kill()?;
    pause(1000);
    load.nodes.route(&[0, 1])?;
    load.on_top(0, 0);
    // Units that it held are missing for twelve periods at most.
    pause(3 * unit_lives());
    load.expect_rate("two nodes again", 1500);
    load.finish()
}

/// Bans and list entries of one node hold on the others, but for their management prefixes.
#[test]
fn bans_and_lists_reach_the_other_nodes() -> Result<()> {
    require_root();
    let mut nodes = Nodes::create("lists", &binary()?, &rules(""), 3, 3)?;
    nodes.nodes[2].limiter.options(["--management", &SOURCE.to_string()]);
    nodes.start()?;
    let source = SOURCE.to_string();
    let arrivals = Arrivals::start(nodes.receiver())?;
    let traffic = Source::start(nodes.sender())?;
    traffic.send(200);
    let arrive = |over: &[usize]| {
        nodes.route(over)?;
        // Packets under way.
        pause(100);
        let before = arrivals.count();
        pause(300);
        anyhow::Ok(arrivals.count() - before)
    };
    let first = &nodes.nodes[0].limiter;
    let is_reported = |node: usize, said: &str| {
        let limiter = &nodes.nodes[node].limiter;
        until(said, || Ok(limiter.said().contains(said)))
    };
    ensure!(arrive(&[1])? > 30, "nobody is denied");

    first.ok(["deny", &source])?;
    is_reported(1, "by another node")?;
    ensure!(arrive(&[1])? == 0, "what one node denies, another one passes");
    // A prefix around the management prefix is taken over, and is below it.
    ensure!(arrive(&[2])? > 30, "another node's list is above a management prefix");
    first.ok(["unlist", &source])?;
    until("it is taken off", || Ok(arrive(&[1])? > 30))?;

    first.ok(["ban", &source, "--for", "1h"])?;
    let banned = |node: usize| {
        let bans = nodes.nodes[node].limiter.json(&["bans"])?;
        anyhow::Ok(bans.to_string().contains(&source))
    };
    until("the ban is there", || banned(1))?;
    ensure!(arrive(&[1])? == 0, "whom one node bans, another one passes");
    is_reported(2, "not taken over from another node")?;
    ensure!(!banned(2)? && arrive(&[2])? > 30, "a ban is above a management prefix");
    first.ok(["unban", &source])?;
    until("the ban is gone", || Ok(!banned(1)?))?;
    ensure!(arrive(&[1])? > 30, "a ban that was taken back holds");
    drop((traffic, arrivals));
    nodes.close()
}

/// A file of `--cluster` with a mistake is refused, with its place, before anything is attached.
#[test]
fn a_bad_file_is_refused_before_anything_is_attached() -> Result<()> {
    require_root();
    let mut nodes = Nodes::create("refused", &binary()?, &rules(""), 1, 1)?;
    let file = nodes.dir.path().join("node-1.yaml");
    let good = fs::read_to_string(&file)?;
    for (text, words) in [
        (good.replace("nodes: 1", "nodes: 0"), [":3: nodes", "write 1 to 65535"]),
        (good.replace("nodes: 1", "node_count: 1"), [":3", "node_count"]),
        (good.replace("nodes: 1\n", ""), ["nodes", "missing"]),
        (good.replace("node-1", "a b"), [":2: node", "letters"]),
        ("redis: [\n".to_owned(), ["node-1.yaml", "docs/cluster-setup.md"]),
    ] {
        fs::write(&file, &text)?;
        check_refused(&nodes, &words).with_context(|| text.clone())?;
    }
    fs::remove_file(&file)?;
    check_refused(&nodes, &["node-1.yaml", "name a file"])?;
    fs::write(&file, &good)?;
    nodes.start()?;
    nodes.close()
}

fn check_refused(nodes: &Nodes, words: &[&str]) -> Result<()> {
    let limiter = &nodes.nodes[0].limiter;
    let output = limiter.run_to_end()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(2), "exit code {:?}: {said}", output.status.code());
    for word in words {
        ensure!(said.contains(word), "{word:?} is not named: {said}");
    }
    ensure!(limiter.xdp()?.is_null(), "it is attached");
    ensure!(!limiter.pins().exists(), "it has left pins");
    Ok(())
}

/// Nodes with other rules are named on both sides, and so is a name that two nodes have.
#[test]
fn other_rules_and_a_name_that_is_taken_are_reported() -> Result<()> {
    require_root();
    let mut nodes = Nodes::create("differ", &binary()?, &rules(""), 2, 2)?;
    nodes.start()?;
    let other = nodes.dir.write("other.yaml", rules(", share: 30%"))?;
    let second = &nodes.nodes[1].limiter;
    second.ok(["apply".as_ref(), other.as_os_str()])?;
    for (node, named) in [(0, "node-2"), (1, "node-1")] {
        let words = format!("other rules than here are in force on {named}");
        until(&words, || warns(&nodes.nodes[node], &words))?;
        let text = nodes.nodes[node].limiter.ok(["cluster"])?;
        ensure!(text.contains(&words) && text.contains(named), "{text}");
        until("both digests are shown", || {
            let reported = nodes.nodes[node].limiter.json(&["cluster"])?;
            let shown = reported["nodes"].as_array().context("no nodes")?;
            Ok(shown.len() == 2 && shown[0]["rules"] != shown[1]["rules"])
        })?;
    }
    second.ok(["reload"])?;
    until("the same again", || Ok(!warns(&nodes.nodes[0], "other rules than here")?))?;

    let file = nodes.dir.path().join("node-2.yaml");
    let text = fs::read_to_string(&file)?;
    fs::write(&file, text.replace("node-2", "node-1"))?;
    nodes.nodes[1].limiter.terminate()?;
    nodes.nodes[1].limiter.start()?;
    for node in &nodes.nodes {
        until("the name is reported", || warns(node, "another node is called node-1"))?;
        node.limiter.wait_until_logged("another node is called node-1")?;
    }
    nodes.close()
}

/// A limit by source holds over all nodes. What the shares pass until the source has leases comes
/// on top of the bound: docs/cluster.md, "The bound".
#[test]
fn a_source_is_limited_as_one() -> Result<()> {
    require_root();
    let mut nodes = Nodes::create("source", &binary()?, &rules_by_source(), 3, 3)?;
    nodes.start()?;
    let mut load = Load::start(nodes)?;
    load.on_top(0, excess_by_source());
    pause(1500);
    load.expect_rate("over the limit", 4000);
    load.source.send(900);
    pause(500);
    load.expect("within the limit", 3000, 890, LIMIT);
    load.finish()
}
