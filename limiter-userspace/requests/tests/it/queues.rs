//! Queues over a real Redis: what leaves, in which order and how fast, and what never does.

use std::collections::{BTreeMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster::{as_node, health};
use crate::redis_server::Server as Redis;
use crate::running::{Response, Running, started};

/// Much longer than anything here takes.
const PATIENCE: Duration = Duration::from_mins(1);

const GROUP: &str = "workers";

/// A rule file with one queue and one rule.
fn rules(queue: &str, limit: &str) -> String {
    format!(
        "domain: d\nqueues: [{{name: emails{queue}}}]\ndescriptors: [{{key: k, rate_limit: \
         {{{limit}}}, action: {{queue: emails}}}}]\n"
    )
}

fn node(redis: &Redis, name: &str, rules: &str) -> Running {
    started(|options| as_node(options, redis, name, 2, rules))
}

fn asked(key: &str, more: &Value) -> Value {
    let mut asked = json!({
        "domain": "d", "descriptors": [{"entries": [{"key": "k", "value": key}]}],
    });
    let fields = more.as_object().unwrap().clone();
    asked.as_object_mut().unwrap().extend(fields);
    asked
}

fn send(node: &Running, key: &str, payload: &str) -> Response {
    node.json(&asked(key, &json!({"payload": payload})))
}

/// A connection of a worker, or of the test.
struct Link(redis::Connection);

impl Link {
    fn new(redis: &Redis) -> Self {
        let end = Instant::now() + PATIENCE;
        loop {
            let client = redis::Client::open(format!("unix://{}", redis.socket().display()));
            match client.unwrap().get_connection() {
                Ok(connection) => return Self(connection),
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn ask<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> redis::RedisResult<T> {
        let mut command = redis::cmd(words[0]);
        words[1..].iter().for_each(|word| drop(command.arg(*word)));
        command.query(&mut self.0)
    }

    fn all(&mut self, place: &str) -> Vec<Entry> {
        let all: Vec<Raw> = self.ask(&["XRANGE", &key(place), "-", "+"]).unwrap();
        all.into_iter().map(Entry::from).collect()
    }

    fn length(&mut self, place: &str) -> u64 {
        self.ask(&["XLEN", &key(place)]).unwrap()
    }

    /// Takes up to so many payloads; nothing is acknowledged. None while there is no server or no
    /// group.
    fn take(&mut self, worker: &str, count: u32) -> Option<Vec<Entry>> {
        let count = count.to_string();
        let stream = key("ready");
        let words = [
            "XREADGROUP",
            "GROUP",
            GROUP,
            worker,
            "COUNT",
            &count,
            "BLOCK",
            "50",
            "STREAMS",
            &stream,
            ">",
        ];
        match self.ask::<Option<Vec<(String, Vec<Raw>)>>>(&words) {
            Ok(Some(streams)) => {
                let all = streams.into_iter().flat_map(|(_, entries)| entries);
                Some(all.map(Entry::from).collect())
            }
            Ok(None) => Some(Vec::new()),
            Err(_) => None,
        }
    }

    /// True if it was not acknowledged before.
    fn acknowledge(&mut self, id: &str) -> redis::RedisResult<bool> {
        self.ask(&["XACK", &key("ready"), GROUP, id])
    }
}

fn key(place: &str) -> String {
    format!("rl:requests:queue:{{emails}}:{place}")
}

type Raw = (String, Vec<String>);

/// An entry of a stream.
struct Entry {
    id: String,
    fields: Vec<String>,
}

impl From<Raw> for Entry {
    fn from((id, fields): Raw) -> Self {
        Self { id, fields }
    }
}

fn of(entry: &Entry, field: &str) -> String {
    let mut pairs = entry.fields.chunks_exact(2);
    pairs.find(|pair| pair[0] == field).unwrap()[1].clone()
}

/// Milliseconds of an entry's id, by the clock of Redis.
fn left_at(entry: &Entry) -> u64 {
    entry.id.split('-').next().unwrap().parse().unwrap()
}

/// No more left in any time than the limit lets: `burst` and `rate` times that. Ids have
/// milliseconds.
fn never_faster(times: &[u64], rate: f64, burst: f64) {
    assert!(times.is_sorted());
    for (first, begin) in times.iter().enumerate() {
        for (count, end) in (1u32..).zip(&times[first..]) {
            let seconds = f64::from(u32::try_from(end - begin + 1).unwrap()) / 1000.0;
            let most = burst + rate * seconds;
            assert!(f64::from(count) <= most, "{count} within {seconds} s, most {most}");
        }
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn of_queue(node: &Running, metric: &str, labels: &str) -> u64 {
    node.metric(&format!("limiter_queue_{metric}{{queue=\"emails\"{labels}}}"))
}

/// What is within the limit passes at once, the rest waits and leaves in its order and at its rate;
/// nobody without a payload goes past those who wait.
#[test]
fn what_is_over_the_limit_leaves_later_in_order_and_at_the_rate() {
    let Some(redis) = Redis::start(&[]) else { return };
    let node = node(&redis, "a", &rules("", "rate: 20/s, burst: 5"));
    let first = send(&node, "x", "now");
    assert_eq!(first.status, 200, "{}", first.body);
    assert_eq!(first.json()["statuses"][0]["limitRemaining"], 4);
    assert!(first.json().get("queued").is_none());
    for number in 1..5 {
        assert_eq!(send(&node, "x", &format!("now {number}")).status, 200);
    }
    for number in 0..40_u64 {
        let answer = send(&node, "x", &format!("later {number}"));
        assert_eq!(answer.status, 202, "{number}: {}", answer.body);
        let body = answer.json();
        assert_eq!(body["overallCode"], "OVER_LIMIT");
        assert_eq!(body["queued"]["queue"], "emails");
        assert!(body["queued"]["ahead"].as_u64().unwrap() <= number, "{body}");
        assert!(body["queued"]["wait"].as_str().unwrap().ends_with('s'), "{body}");
        assert_eq!(body["queued"]["id"].as_str().unwrap().len(), 32);
    }
    // Another bucket does not wait for this one.
    assert_eq!(send(&node, "y", "other").status, 200);
    let plain = node.json(&asked("x", &json!({})));
    assert_eq!(plain.status, 429);
    assert!(plain.json().get("queued").is_none());
    let mut link = Link::new(&redis);
    let mut taken = Vec::new();
    until("all leave", || {
        taken.extend(link.take("w", 100).unwrap_or_default());
        taken.len() == 40
    });
    let payloads: Vec<String> = taken.iter().map(|entry| of(entry, "payload")).collect();
    let expected: Vec<String> = (0..40).map(|number| format!("later {number}")).collect();
    assert_eq!(payloads, expected);
    never_faster(&taken.iter().map(left_at).collect::<Vec<_>>(), 20.0, 5.0);
    for entry in &taken {
        assert!(link.acknowledge(&entry.id).unwrap());
        assert_eq!(of(entry, "attempt"), "1");
    }
    until("what is acknowledged goes", || link.length("ready") == 0);
    until("it is counted", || of_queue(&node, "payloads", ",place=\"ready\"") == 0);
    assert_eq!(of_queue(&node, "left_total", ""), 40);
    assert_eq!(of_queue(&node, "payloads", ",place=\"waiting\""), 0);
    let became = "limiter_request_descriptors_total{domain=\"d\",rule=\"k\",name=\"\",became=";
    assert_eq!(node.metric(&format!("{became}\"queued\"}}")), 40);
    assert_eq!(node.metric(&format!("{became}\"within\"}}")), 6);
    assert_eq!(node.metric(&format!("{became}\"over\"}}")), 1);
    node.server.stop().unwrap();
}
