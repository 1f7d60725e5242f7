//! Processes that share limits over a real Redis.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use limiter_cluster::{Config, NodeSettings};
use limiter_requests::Options;
use serde_json::json;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::bans::Fake;
use crate::grpc::channel;
use crate::redis_server::{Server as Redis, runtime};
use crate::running::{Running, started};

/// Options of a node of `nodes`.
pub(crate) fn as_node(options: &mut Options, redis: &Redis, name: &str, nodes: u16, rules: &str) {
    let node = NodeSettings {
        name: name.to_owned(),
        nodes,
        shards: 1,
        timeout: Duration::from_millis(350),
        keys: None,
        newest: 0,
    };
    options.cluster = Some(Config { redis: redis.settings(), node, key_file: None });
    options.deadline = Duration::from_secs(10);
    fs::write(&options.rules[0], rules).unwrap();
}

fn nodes<const N: usize>(redis: &Redis, rules: &str) -> [Running; N] {
    std::array::from_fn(|number| {
        started(|options| {
            as_node(options, redis, &format!("node-{number}"), u16::try_from(N).unwrap(), rules);
        })
    })
}

/// A client that keeps its connection.
struct Client(BufReader<TcpStream>);

impl Client {
    fn new(running: &Running) -> Self {
        Self(BufReader::new(running.connect()))
    }

    /// True if a request with this value of `k` passes.
    fn passes(&mut self, value: &str) -> bool {
        self.ask(value, 1) == 1
    }

    /// Sends so many requests at once; returns how many pass.
    fn ask(&mut self, value: &str, requests: u32) -> u32 {
        let entries = json!([{"key": "k", "value": value}]);
        let asked = json!({"domain": "d", "descriptors": [{"entries": entries}]}).to_string();
        let length = asked.len();
        let one =
            format!("POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{asked}");
        let all = one.repeat(usize::try_from(requests).unwrap());
        self.0.get_mut().write_all(all.as_bytes()).unwrap();
        (0..requests).map(|_| u32::from(self.answer())).sum()
    }

    fn answer(&mut self) -> bool {
        let (mut status, mut length) = (0, 0);
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).unwrap();
            let line = line.trim_end();
            if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
                status = rest[..3].parse().unwrap();
            } else if let Some(rest) = line.strip_prefix("content-length: ") {
                length = rest.parse().unwrap();
            } else if line.is_empty() {
                break;
            }
        }
        self.0.read_exact(&mut vec![0; length]).unwrap();
        assert!(status == 200 || status == 429, "{status}");
        status == 200
    }
}

/// Calls of scripts that the server has done, by its own count.
fn calls(redis: &Redis) -> u64 {
    let runtime = runtime();
    let mut admin = redis.admin(&runtime);
    let info: String = runtime.block_on(admin.ask(&["INFO", "commandstats"]));
    let of = |line: &str| {
        let (_, rest) = line.strip_prefix("cmdstat_evalsha:")?.split_once("calls=")?;
        rest.split(',').next()?.parse().ok()
    };
    info.lines().find_map(of).unwrap_or(0)
}

/// What was sent, and what became of it.
struct Load {
    passed: u32,
    sent: u32,
    /// Seconds from before the first request to after the last answer.
    time: f64,
}

/// Sends to all nodes at once for a time, from so many clients each, `at_once` requests with one
/// value of `k` at a time; `key` makes the value of a number, and `note` takes what passed.
fn load(
    nodes: &[Running],
    (clients, at_once): (usize, u32),
    time: Duration,
    key: impl Fn(u32) -> String + Sync,
    note: impl Fn(u32, u32) + Sync,
) -> Load {
    let (passed, sent, stop) = (AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false));
    let begin = Instant::now();
    thread::scope(|scope| {
        for node in nodes.iter().cycle().take(clients * nodes.len()) {
            let (passed, sent, stop, key, note) = (&passed, &sent, &stop, &key, &note);
            scope.spawn(move || {
                let mut client = Client::new(node);
                while !stop.load(Ordering::Relaxed) {
                    let number = sent.fetch_add(at_once, Ordering::Relaxed);
                    let count = client.ask(&key(number), at_once);
                    note(number, count);
                    passed.fetch_add(count, Ordering::Relaxed);
                }
            });
        }
        thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
    });
    let time = begin.elapsed().as_secs_f64();
    Load { passed: passed.into_inner(), sent: sent.into_inner(), time }
}

fn nothing(_: u32, _: u32) {}

fn stop(nodes: impl IntoIterator<Item = Running>) {
    nodes.into_iter().for_each(|node| node.server.stop().unwrap());
}

/// The bound of docs/cluster.md for a rule by source with the default shares, T = 200 ms and calls
/// that take up to 350 ms.
fn bound(rate: f64, burst: f64, time: f64) -> f64 {
    burst + rate * time + 0.1 * burst + 0.25 * rate * (0.225 + 2.0 * 0.35)
}

#[test]
fn a_hot_key_of_two_or_three_nodes_stays_within_the_bound_and_rarely_asks() {
    let Some(redis) = Redis::start(&[]) else { return };
    let rules = "domain: d\ndescriptors: [{key: k, scope: cluster, rate_limit: {rate: 300/s}}]\n";
    let hot = |nodes: &[Running], key: &str| {
        let before = calls(&redis);
        let load = load(nodes, (12, 50), Duration::from_secs(4), |_| key.to_owned(), nothing);
        let calls = calls(&redis) - before;
        let Load { passed, sent, time } = load;
        let bound = bound(300.0, 300.0, time);
        println!("{key}: {passed} of {sent} in {time:.2} s, bound {bound:.0}, {calls} calls");
        assert!(f64::from(passed) <= bound, "{passed} of {sent} in {time} s, bound {bound}");
        assert!(f64::from(passed) >= 300.0 * time * 0.7, "{passed} of {sent} in {time} s");
        // However fast they send: a node asks some twenty times a second.
        let [calls, all] =
            [calls, nodes.len() as u64].map(|n| f64::from(u32::try_from(n).unwrap()));
        assert!(calls < 30.0 * all * time, "{calls} calls in {time} s, for {sent} requests");
    };
    let two = nodes::<2>(&redis, rules);
    hot(&two, "two");
    stop(two);
    let three = nodes::<3>(&redis, rules);
    hot(&three, "three");
    stop(three);
}

#[test]
fn many_keys_of_three_nodes_stay_within_their_bounds() {
    let Some(redis) = Redis::start(&[]) else { return };
    let rules = "domain: d\ndescriptors: [{key: k, scope: cluster, rate_limit: {rate: 20/s}}]\n";
    let nodes = nodes::<3>(&redis, rules);
    let passed: Vec<AtomicU32> = (0..50).map(|_| AtomicU32::new(0)).collect();
    // One after the other, with a step that every client's turn is spread by.
    let key = |number: u32| usize::try_from(number / 5).unwrap() % passed.len();
    let load = load(
        &nodes,
        (4, 5),
        Duration::from_secs(4),
        |number| format!("key-{}", key(number)),
        |number, passes| {
            passed[key(number)].fetch_add(passes, Ordering::Relaxed);
        },
    );
    let bound = bound(20.0, 20.0, load.time) + 3.0;
    println!("{} of {} in {:.2} s: {bound:.1}, {passed:?}", load.passed, load.sent, load.time);
    for passed in &passed {
        let passed = passed.load(Ordering::Relaxed);
        assert!(f64::from(passed) <= bound, "{passed}, bound {bound}");
        // All of the burst at least, whichever nodes it came to.
        assert!(passed >= 15, "{passed}");
    }
    stop(nodes);
}

/// Limits so small that no node has a share: on one node exactly as many pass as they say, because
/// requests wait for the lease; on several never more, and perhaps fewer.
#[test]
fn small_limits_pass_what_they_say_on_whichever_node() {
    let Some(redis) = Redis::start(&[]) else { return };
    for algorithm in ["token_bucket", "fixed_window", "sliding_counter", "sliding_log"] {
        let rules = format!(
            "domain: d\ndescriptors: [{{key: k, scope: cluster, rate_limit: {{unit: day, \
             requests_per_unit: 6, algorithm: {algorithm}}}}}]\n"
        );
        let nodes = nodes::<3>(&redis, &rules);
        let mut clients: Vec<_> = nodes.iter().map(Client::new).collect();
        let mut passes = |value: &str, node: usize| clients[node].passes(value);
        let alone: Vec<bool> = (0..9).map(|_| passes("alone", 0)).collect();
        assert_eq!(alone, [[true; 6].as_slice(), &[false; 3]].concat(), "{algorithm}");
        let in_turn = (0..30).filter(|number| passes("in turn", number % 3)).count();
        // A node may hold a unit that the others ask for.
        assert!((4..=6).contains(&in_turn), "{algorithm}: {in_turn}");
        assert!(!passes("alone", 1) && !passes("alone", 2), "{algorithm}");
        stop(nodes);
    }
}

/// A rule for each word of `on_partition`, and one of a window.
const POLICIES: &str = "
domain: d
descriptors:
  - key: k
    value: share
    scope: cluster
    rate_limit: {unit: day, requests_per_unit: 100}
  - key: k
    value: open
    scope: cluster
    cluster: {on_partition: open}
    rate_limit: {unit: day, requests_per_unit: 4}
  - key: k
    value: closed
    scope: cluster
    cluster: {on_partition: closed}
    rate_limit: {unit: day, requests_per_unit: 100}
  - key: k
    value: window
    scope: cluster
    rate_limit: {unit: day, requests_per_unit: 10, algorithm: fixed_window}
  - {key: k, value: alone, rate_limit: {unit: day, requests_per_unit: 2}}
";

/// What passes of 20 requests for each rule.
fn of_each(client: &mut Client) -> [usize; 5] {
    ["share", "open", "closed", "window", "alone"]
        .map(|value| (0..20).filter(|_| client.passes(value)).count())
}

fn unanswered(node: &Running, rule: &str, on_partition: &str, reason: &str) -> u64 {
    node.metric(&format!(
        "limiter_request_on_partition_total{{domain=\"d\",rule=\"k={rule}\",name=\"\",\
         on_partition=\"{on_partition}\",reason=\"{reason}\"}}"
    ))
}

/// Waits until the health of a node begins as given.
pub(crate) fn health(node: &Running, begins: &str) {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let answer = node.ask("GET", "/healthcheck", "", "");
        assert_eq!(answer.status, 200);
        if answer.body.starts_with(begins) {
            return;
        }
        assert!(Instant::now() < end, "{}", answer.body);
        thread::sleep(Duration::from_millis(20));
    }
}

/// Without contact each rule does what it says; `share` is this node's part of ten in a hundred,
/// and for a window its part of the quota.
#[test]
fn without_redis_each_rule_does_what_its_on_partition_says() {
    let Some(mut redis) = Redis::start(&[]) else { return };
    redis.kill();
    let [a, b] = nodes::<2>(&redis, POLICIES);
    for node in [&a, &b] {
        health(node, "degraded: no contact to the other nodes: ");
        assert_eq!(node.metric("limiter_cluster_connected"), 0);
        assert_eq!(of_each(&mut Client::new(node)), [5, 4, 0, 5, 2]);
        for (rule, on_partition) in
            [("share", "share"), ("open", "open"), ("closed", "closed"), ("window", "share")]
        {
            assert_eq!(unanswered(node, rule, on_partition, "no_contact"), 20, "{rule}");
        }
    }
    // It finds Redis by itself.
    redis.restart();
    for node in [&a, &b] {
        health(node, "OK");
        assert_eq!(node.metric("limiter_cluster_connected"), 1);
    }
    let mut client = Client::new(&a);
    assert!(client.passes("closed") && client.passes("window"));
    stop([a, b]);
}

/// Over gRPC the contact is a service of its own, so that nobody ends a node that answers.
#[tokio::test]
async fn the_health_of_grpc_names_the_contact_and_stays_good() {
    let Some(mut redis) = Redis::start(&[]) else { return };
    redis.kill();
    let [node] = nodes::<1>(&redis, POLICIES);
    let mut client = HealthClient::new(channel(&node).await);
    for (away, contact) in [(true, ServingStatus::NotServing), (false, ServingStatus::Serving)] {
        let asked = HealthCheckRequest { service: "limiter.cluster".to_owned() };
        let end = Instant::now() + Duration::from_secs(30);
        while client.check(asked.clone()).await.unwrap().into_inner().status() != contact {
            assert!(Instant::now() < end, "{contact:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let all = client.check(HealthCheckRequest::default()).await.unwrap().into_inner();
        assert_eq!(all.status(), ServingStatus::Serving);
        if away {
            redis.restart();
        }
    }
    node.server.stop().unwrap();
}

/// Requests that are refused for want of an answer are no strikes of their source.
#[test]
fn nobody_is_banned_because_redis_does_not_answer() {
    let Some(mut redis) = Redis::start(&[]) else { return };
    redis.kill();
    let ban = "action: {ban: {first: 1min}}";
    let rules = format!(
        "domain: d\ndescriptors:\n  - {{key: k, value: other, descriptors: [{{key: remote_address, \
         rate_limit: {{unit: day, requests_per_unit: 1}}, {ban}}}]}}\n  - {{key: remote_address, \
         scope: cluster, cluster: {{on_partition: closed}}, rate_limit: {{rate: 9/day}}, {ban}}}\n"
    );
    let daemon = Arc::new(Fake::default());
    let node = started(|options| {
        as_node(options, &redis, "a", 1, &rules);
        options.deadline = Duration::from_millis(1);
        options.daemon = Some(Arc::<Fake>::clone(&daemon));
    });
    let source = json!({"key": "remote_address", "value": "192.0.2.1"});
    let other = json!([{"key": "k", "value": "other"}, source]);
    for (entries, statuses) in [(json!([source]), [429, 429]), (other, [200, 429])] {
        let asked = json!({"domain": "d", "descriptors": [{"entries": entries}]});
        assert_eq!([node.json(&asked).status, node.json(&asked).status], statuses);
    }
    node.server.stop().unwrap();
    assert_eq!(daemon.asked(), ["192.0.2.1 d: k=other remote_address"]);
}

/// A server that hangs is asked, and no request waits for it beyond the deadline; if too many wait,
/// the next one does not. Either way the rule says what passes.
#[test]
fn a_request_waits_until_the_deadline_at_most_and_not_beside_too_many() {
    let Some(redis) = Redis::start(&[]) else { return };
    redis.signal("STOP");
    for (most, reason) in [(10, "late"), (0, "overload")] {
        let node = started(|options| {
            as_node(options, &redis, "a", 1, POLICIES);
            options.deadline = Duration::from_millis(1);
            options.max_waiting = most;
        });
        let mut client = Client::new(&node);
        // Before anybody knows that there is no contact.
        assert!(client.passes("open") && !client.passes("closed") && client.passes("window"));
        for (rule, on_partition) in [("open", "open"), ("closed", "closed"), ("window", "share")] {
            assert_eq!(unanswered(&node, rule, on_partition, reason), 1, "{rule}");
        }
        assert_eq!(node.metric("limiter_request_waiting"), 0);
        node.server.stop().unwrap();
    }
    redis.signal("CONT");
}

/// Redis is killed and comes back without its state, again and again. Each time adds a burst and
/// the shares to the bound, and no request goes without an answer.
#[test]
fn a_redis_that_is_killed_at_random_adds_no_more_than_is_published() {
    let Some(mut redis) = Redis::start(&[]) else { return };
    let rules = "domain: d\ndescriptors: [{key: k, scope: cluster, rate_limit: {rate: 300/s, \
                 burst: 150}}]\n";
    let nodes = nodes::<3>(&redis, rules);
    let mut kills = 0;
    let Load { passed, sent, time } = thread::scope(|scope| {
        let load = scope
            .spawn(|| load(&nodes, (4, 20), Duration::from_secs(8), |_| "hot".to_owned(), nothing));
        while !load.is_finished() {
            thread::sleep(Duration::from_millis(fastrand::u64(200..1500)));
            redis.kill();
            kills += 1;
            thread::sleep(Duration::from_millis(fastrand::u64(0..800)));
            redis.restart();
        }
        load.join().unwrap()
    });
    let each = bound(300.0, 150.0, 0.0);
    let bound = bound(300.0, 150.0, time) + f64::from(kills) * (each + 15.0) + 0.25 * 300.0 * time;
    println!("{passed} of {sent} in {time:.2} s with {kills} kills, bound {bound:.0}");
    assert!(f64::from(passed) <= bound, "{passed} of {sent} in {time} s, bound {bound}");
    assert!(f64::from(passed) >= 300.0 * time * 0.2, "{passed} of {sent} in {time} s");
    for node in &nodes {
        health(node, "OK");
    }
    stop(nodes);
}
