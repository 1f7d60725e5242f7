//! Nodes over a real server that dies, stops, forgets, fills up or refuses, and what a node costs.

use std::thread::sleep;
use std::time::{Duration, Instant};

use limiter_cluster::status::Contact;
use limiter_cluster::{Change, Cluster, Config, Keys, NodeSettings, Notice, Status};
use limiter_datapath::fake::MemoryLeases;
use limiter_sharing::leases::Counts;
use tokio::runtime::Runtime;

use crate::load::{Load, passes};
use crate::node::{Node, budget, node_settings};
use crate::server::{Server, runtime};

fn start(name: &str, server: &Server, leases: usize) -> Node {
    Node::over(name, server.settings(), leases)
}

fn is_lost(notice: &Notice) -> Option<String> {
    match notice {
        Notice::Lost { error } => Some(error.clone()),
        _ => None,
    }
}

fn is_regained(notice: &Notice) -> Option<Duration> {
    match notice {
        Notice::Regained { after } => Some(*after),
        _ => None,
    }
}

/// Two nodes under load, a fault that cuts them off, and its end.
fn outage(
    fault: &str,
    begin: impl FnOnce(&mut Server, &Runtime),
    end: impl FnOnce(&mut Server, &Runtime),
) {
    let Some(mut server) = Server::start(&[]) else { return };
    let runtime = runtime();
    let mut nodes = ["a", "b"].map(|name| start(name, &server, 1));
    for node in &nodes {
        node.cluster.set_rules(vec![budget("customer", 0)].into(), 1);
    }
    let load = Load::start(&nodes, &[1500]);
    passes(&nodes, &[0]);
    begin(&mut server, &runtime);
    for node in &mut nodes {
        let error = node.wait("loss of contact", is_lost);
        println!("{fault}: {error}");
    }
    // Ticks go on: what arrives is still counted, while nothing passes any more.
    let before = nodes[0].shows("no contact, and why", |status| {
        let cut_off = matches!(status.contact, Contact::CutOff(_)) && status.without_contact == 1;
        cut_off && status.last_error.is_some() && status.failed > 0
    });
    let more = |status: &Status| status.leases[0].denied > before.leases[0].denied + 1000;
    let after = nodes[0].shows("more that is denied", more);
    assert_eq!(after.leases[0].used, before.leases[0].used);
    end(&mut server, &runtime);
    for node in &mut nodes {
        let after = node.wait("contact", is_regained);
        println!("{fault}: in contact again after {} ms", after.as_millis());
    }
    passes(&nodes, &[0]);
    let meter = &load.end()[0];
    println!("{fault}: {} passed, {} over 1000/s", meter.admitted(), meter.excess());
    assert!(meter.excess() <= 1000, "{}", meter.excess());
    for node in nodes {
        node.cluster.stop();
    }
}

/// A fault by a command of the server.
fn by(words: &'static [&'static str]) -> impl FnOnce(&mut Server, &Runtime) {
    move |server, runtime| {
        let mut admin = server.admin(runtime);
        let _done: redis::Value = runtime.block_on(admin.ask(words));
    }
}

/// A change that somebody writes to the server by hand is refused by nodes with a key, and those of
/// the nodes go through the server signed.
#[test]
fn what_is_written_by_hand_is_not_signed() {
    let Some(server) = Server::start(&[]) else { return };
    let runtime = runtime();
    let mut admin = server.admin(&runtime);
    let keys = Some(Keys::parse("0123456789abcdef0123456789abcdef").expect("a key"));
    let [a, mut b] = ["a", "b"].map(|name| {
        let node = NodeSettings { keys: keys.clone(), ..node_settings(name) };
        let config = Config { redis: server.settings(), node, key_file: None };
        let leases = MemoryLeases::new(8, Counts::default());
        let (cluster, notices) = Cluster::start(config, leases.clone()).expect("it starts");
        Node { cluster, notices, leases }
    });
    let unban =
        |last: u8| Change::Unban { sources: std::net::IpAddr::from([192, 0, 2, last]).into() };
    a.cluster.publish(unban(1)).expect("there is room");
    let reported = |notice: &Notice| match notice {
        Notice::Change(change) => Some(change.clone()),
        _ => None,
    };
    assert_eq!(b.wait("signed change", reported), unban(1));
    let key = "rl:{node}:changes";
    let last: Vec<(String, Vec<String>)> =
        runtime.block_on(admin.ask(&["XREVRANGE", key, "+", "-", "COUNT", "1"]));
    let (number, fields) = &last[0];
    let number: u64 = number.strip_suffix("-0").expect("N-0").parse().expect("a number");
    // By hand, and the same line again.
    for (next, text) in [(1, "allow 198.51.100.0/24"), (2, &fields[5])] {
        let id = format!("{}-0", number + next);
        let words = ["XADD", key, &id, "from", &fields[1], "end", "-1", "text", text];
        let _added: String = runtime.block_on(admin.ask(&words));
    }
    let refused = b.wait("refusal", |notice| match notice {
        Notice::Refused { count, latest } => Some((*count, latest.clone())),
        _ => None,
    });
    assert_eq!((refused.0, refused.1[0].change.as_str()), (1, "allow 198.51.100.0/24"));
    assert!(refused.1[0].why.contains("not signed"), "{refused:?}");
    // The repeated line is passed over: the next change is the next one.
    a.cluster.publish(unban(2)).expect("there is room");
    assert_eq!(b.wait("signed change", reported), unban(2));
    a.cluster.stop();
    b.cluster.stop();
}

#[test]
fn a_server_that_dies_and_comes_back() {
    outage("killed", |server, _| server.kill(), |server, _| server.restart());
}

#[test]
fn a_server_that_is_stopped_like_a_machine_that_hangs() {
    outage("stopped", |server, _| server.signal("STOP"), |server, _| server.signal("CONT"));
}

#[test]
fn a_server_that_pauses_its_clients() {
    outage("paused", by(&["CLIENT", "PAUSE", "4000", "ALL"]), |_, _| ());
}

#[test]
fn a_server_that_is_full() {
    let full = by(&["CONFIG", "SET", "maxmemory", "1"]);
    outage("full", full, by(&["CONFIG", "SET", "maxmemory", "0"]));
}

#[test]
fn a_server_that_becomes_a_replica() {
    outage("read-only", by(&["REPLICAOF", "192.0.2.1", "1"]), by(&["REPLICAOF", "NO", "ONE"]));
}

#[test]
fn a_server_that_forgets_everything_and_its_scripts() {
    let Some(server) = Server::start(&[]) else { return };
    let runtime = runtime();
    let mut admin = server.admin(&runtime);
    let mut nodes = ["a", "b"].map(|name| start(name, &server, 1));
    for node in &nodes {
        node.cluster.set_rules(vec![budget("customer", 0)].into(), 1);
    }
    let unlist = Change::Unlist { sources: std::net::IpAddr::from([192, 0, 2, 7]).into() };
    nodes[0].cluster.publish(unlist.clone()).expect("room");
    nodes[1].wait("the change", |notice| (*notice == Notice::Change(unlist.clone())).then_some(()));
    let load = Load::start(&nodes, &[1500]);
    passes(&nodes, &[0]);
    let _done: String = runtime.block_on(admin.ask(&["FLUSHALL"]));
    let _done: String = runtime.block_on(admin.ask(&["SCRIPT", "FLUSH"]));
    for node in &mut nodes {
        let is_missed =
            |notice: &Notice| (*notice == Notice::Missed { changes: None }).then_some(());
        node.wait("that changes may be missing", is_missed);
    }
    passes(&nodes, &[0]);
    sleep(Duration::from_secs(2));
    let status = nodes[0].shows("both nodes", |status| {
        status.nodes.len() == 2 && matches!(status.contact, Contact::Connected(_))
    });
    assert_eq!(status.count, 2);
    let meter = &load.end()[0];
    println!("flushed: {} over 1000/s", meter.excess());
    assert!(meter.excess() <= 2000, "a burst more: {}", meter.excess());
    for node in nodes {
        node.cluster.stop();
    }
    let keys: Vec<String> = runtime.block_on(admin.ask(&["KEYS", "rl:{node}:*"]));
    assert_eq!(keys, Vec::<String>::new(), "nodes that end are gone");
}

#[test]
fn a_node_starts_without_a_server_and_finds_it() {
    let Some(mut server) = Server::start(&[]) else { return };
    server.kill();
    let mut node = start("a", &server, 1);
    node.cluster.set_rules(vec![budget("customer", 0)].into(), 1);
    node.wait("that there is no contact", is_lost);
    node.cluster
        .publish(Change::Unlist { sources: std::net::IpAddr::from([1, 1, 1, 1]).into() })
        .expect("room");
    server.restart();
    node.wait("contact", is_regained);
    // The first lease may come before the first answer that carries a clock.
    let status = node.shows("a lease and the store's clock", |status| {
        let in_contact = status.without_contact == 0 && !status.leases.is_empty();
        in_contact && status.round_trip.is_some() && status.clock_ahead.is_some()
    });
    assert!(status.round_trip.is_some_and(|time| time < Duration::from_millis(350)), "{status:?}");
    assert!(status.clock_ahead.is_some_and(|ahead| ahead.abs() < 1_000_000), "{status:?}");
    // Reported now, since nothing of it has ended.
    let mut other = start("b", &server, 1);
    other.wait("the change", |notice| matches!(notice, Notice::Change(_)).then_some(()));
    let begin = Instant::now();
    server.signal("STOP");
    node.cluster.stop();
    other.cluster.stop();
    assert!(begin.elapsed() < Duration::from_millis(1500), "{:?}", begin.elapsed());
    server.signal("CONT");
}

#[test]
fn a_limit_whose_key_somebody_else_made_does_without_and_others_go_on() {
    let Some(server) = Server::start(&[]) else { return };
    let runtime = runtime();
    let mut admin = server.admin(&runtime);
    let keys: Vec<String> = (0..4).map(|shard| format!("rl:{{{shard:04}}}:b:stolen")).collect();
    for key in &keys {
        let _new: i64 = runtime.block_on(admin.ask(&["HSET", key, "x", "y"]));
    }
    let mut node = start("a", &server, 2);
    node.cluster.set_rules(vec![budget("stolen", 0), budget("customer", 1)].into(), 1);
    let error = node.wait("whose key it is", |notice| match notice {
        Notice::Foreign { error } => Some(error.clone()),
        _ => None,
    });
    assert!(keys.iter().any(|key| error.starts_with(&format!("{key} in the store"))), "{error}");
    let one = |status: &Status| {
        let in_contact = matches!(status.contact, Contact::Connected(_));
        status.leases.len() == 2 && status.without_contact == 1 && in_contact
    };
    let status = node.shows("one lease in contact", one);
    assert!(status.leases.iter().all(|lease| lease.in_contact == (&*lease.name == "customer")));
    assert_eq!(status.last_error.as_ref().map(|(_, text)| text), Some(&error));
    // Reported once, however often it is asked for.
    sleep(Duration::from_secs(1));
    while let Ok(notice) = node.notices.try_recv() {
        assert!(!matches!(notice, Notice::Foreign { .. } | Notice::Lost { .. }), "{notice:?}");
    }
    assert_eq!(node.cluster.status().failed, 0);
    for key in &keys {
        let gone: i64 = runtime.block_on(admin.ask(&["DEL", key]));
        assert_eq!(gone, 1, "it stayed as it was");
    }
    node.shows("both leases in contact", |status| status.without_contact == 0);
    node.cluster.stop();
}

/// Time of the processor, in hundredths of a second, that the threads of nodes took so far.
fn processor() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("it is there");
    let of = |path: std::path::PathBuf| -> Option<u64> {
        let text = std::fs::read_to_string(path.join("stat")).ok()?;
        let (head, rest) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        let times = fields[11].parse::<u64>().ok()? + fields[12].parse::<u64>().ok()?;
        head.ends_with("(cluster").then_some(times)
    };
    tasks.filter_map(|task| of(task.ok()?.path())).sum()
}

#[test]
fn a_thousand_budgets_take_a_part_of_a_core() {
    let Some(server) = Server::start(&[]) else { return };
    let runtime = runtime();
    let mut admin = server.admin(&runtime);
    let leases = MemoryLeases::new(1000, Counts::default());
    let settings = NodeSettings { shards: 16, ..node_settings("a") };
    let config = Config { redis: server.settings(), node: settings, key_file: None };
    let (cluster, notices) = Cluster::start(config, leases.clone()).expect("it starts");
    let node = Node { cluster, notices, leases };
    let rules = (0..1000).map(|lease| budget(&format!("customer/{lease:04}/packets"), lease));
    node.cluster.set_rules(rules.collect::<Vec<_>>().into(), 1);
    let is_full = |status: &Status| status.leases.len() == 1000 && status.without_contact == 0;
    node.shows("a thousand leases", is_full);
    for load in [0, 20] {
        let _reset: String = runtime.block_on(admin.ask(&["CONFIG", "RESETSTAT"]));
        let (calls, used, begin) = (node.cluster.status().calls, processor(), Instant::now());
        let mut first = 0;
        while begin.elapsed() < Duration::from_secs(4) {
            for lease in first..first + 100 {
                for _ in 0..load {
                    node.leases.packet(lease, 1);
                }
            }
            first = (first + 100) % 1000;
            sleep(Duration::from_millis(10));
        }
        let time = begin.elapsed().as_secs_f64();
        let used = (processor() - used) as f64 / time;
        let status = node.cluster.status();
        let calls = (status.calls - calls) as f64 / time;
        let info: String = runtime.block_on(admin.ask(&["INFO", "commandstats"]));
        let line = info.lines().find(|line| line.starts_with("cmdstat_evalsha:"));
        let micros = line.and_then(|line| line.split("usec=").nth(1)?.split(',').next());
        let micros: f64 = micros.expect("it was called").parse().expect("a number");
        println!(
            "1000 budgets, {} a second each: {used:.1} % of a core, {calls:.0} calls/s, server \
             {:.1} %, round trip {:?}, worst {:?}",
            load * 10,
            micros / time / 1e4,
            status.round_trip,
            status.worst_round_trip,
        );
        assert!(used < 50.0, "{used} % of a core, unoptimised");
        // A machine that is busy with other things may cut them off for a while.
        node.shows("all in contact", is_full);
    }
    node.cluster.stop();
}
