//! Queues over a real Redis: what leaves, in which order and how fast, and what never does.

use std::collections::HashSet;
use std::path::Path;
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
pub(crate) fn rules(queue: &str, limit: &str) -> String {
    format!(
        "domain: d\nqueues: [{{name: emails{queue}}}]\ndescriptors: [{{key: k, rate_limit: \
         {{{limit}}}, action: {{queue: emails}}}}]\n"
    )
}

fn node(redis: &Redis, name: &str, rules: &str) -> Running {
    started(|options| as_node(options, redis, name, 2, rules))
}

pub(crate) fn asked(key: &str, more: &Value) -> Value {
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
pub(crate) struct Link(redis::Connection);

impl Link {
    pub(crate) fn new(redis: &Redis) -> Self {
        Self::at(&redis.socket())
    }

    /// Waits until there is a server.
    fn at(socket: &Path) -> Self {
        let end = Instant::now() + PATIENCE;
        loop {
            let client = redis::Client::open(format!("unix://{}", socket.display()));
            match client.unwrap().get_connection() {
                Ok(connection) => return Self(connection),
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn ask<T: redis::FromRedisValue>(
        &mut self,
        words: &[&str],
    ) -> redis::RedisResult<T> {
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(*word);
        }
        command.query(&mut self.0)
    }

    fn all(&mut self, place: &str) -> Vec<Entry> {
        let all: Vec<Raw> = self.ask(&["XRANGE", &key(place), "-", "+"]).unwrap();
        all.into_iter().map(Entry::from).collect()
    }

    pub(crate) fn length(&mut self, place: &str) -> u64 {
        self.ask(&["XLEN", &key(place)]).unwrap()
    }

    /// Takes up to so many payloads; nothing is acknowledged. `None` while there is no server or no
    /// group.
    pub(crate) fn take(&mut self, worker: &str, count: u32) -> Option<Vec<Entry>> {
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
    pub(crate) fn acknowledge(&mut self, id: &str) -> redis::RedisResult<bool> {
        self.ask(&["XACK", &key("ready"), GROUP, id])
    }
}

pub(crate) fn key(place: &str) -> String {
    format!("rl:requests:queue:{{emails}}:{place}")
}

type Raw = (String, Vec<String>);

pub(crate) struct Entry {
    pub(crate) id: String,
    fields: Vec<String>,
}

impl From<Raw> for Entry {
    fn from((id, fields): Raw) -> Self {
        Self { id, fields }
    }
}

pub(crate) fn of(entry: &Entry, field: &str) -> String {
    let mut pairs = entry.fields.chunks_exact(2);
    pairs.find(|pair| pair[0] == field).unwrap()[1].clone()
}

/// Milliseconds of an entry's id, by the clock of Redis.
fn left_at(entry: &Entry) -> u64 {
    entry.id.split('-').next().unwrap().parse().unwrap()
}

/// No more left in any time than the limit allows: `burst`, and `rate` times that time. Ids have
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

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn of_queue(node: &Running, metric: &str, labels: &str) -> u64 {
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
    // A machine that is busy may be slower than the rate.
    let (mut expected, mut sent) = (Vec::new(), 0_u64);
    while expected.len() < 40 {
        let payload = format!("later {sent}");
        sent += 1;
        let answer = send(&node, "x", &payload);
        if answer.status == 200 {
            continue;
        }
        assert_eq!(answer.status, 202, "{}", answer.body);
        let body = answer.json();
        assert_eq!(body["overallCode"], "OVER_LIMIT");
        assert_eq!(body["queued"]["queue"], "emails");
        let ahead = usize::try_from(body["queued"]["ahead"].as_u64().unwrap()).unwrap();
        assert!(ahead <= expected.len(), "{body}");
        assert!(body["queued"]["wait"].as_str().unwrap().ends_with('s'), "{body}");
        assert_eq!(body["queued"]["id"].as_str().unwrap().len(), 32);
        expected.push(payload);
    }
    // Another bucket does not wait for this one.
    assert_eq!(send(&node, "y", "other").status, 200);
    let plain = node.json(&asked("x", &json!({})));
    assert!(plain.json().get("queued").is_none());
    let mut link = Link::new(&redis);
    let mut taken = Vec::new();
    until("all leave", || {
        taken.extend(link.take("w", 100).unwrap_or_default());
        taken.len() == 40
    });
    let payloads: Vec<String> = taken.iter().map(|entry| of(entry, "payload")).collect();
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
    let (within, over) = (sent - 40 + 6, u64::from(plain.status == 429));
    assert_eq!(node.metric(&format!("{became}\"within\"}}")), within + 1 - over);
    assert_eq!(node.metric(&format!("{became}\"over\"}}")), over);
    node.server.stop().unwrap();
}

/// What cannot wait is refused with the reason, and is in no stream.
#[test]
fn what_cannot_wait_is_refused_with_the_reason() {
    let Some(redis) = Redis::start(&[]) else { return };
    let queue = ", depth: 3, age: 1min, payload: 10";
    let node = node(&redis, "a", &rules(queue, "rate: 10/min, burst: 2"));
    let refused = |answer: &Response, status: u16, why: &str| {
        let body = answer.json();
        let shown = body["notQueued"].as_str().or(body["error"].as_str()).unwrap_or_default();
        assert!(answer.status == status && shown.contains(why), "{}: {body}", answer.status);
        assert!(body.get("queued").is_none(), "{body}");
    };
    refused(&send(&node, "x", "eleven byte"), 400, "has 11 bytes, and the queue emails takes up");
    let hits = |hits: u64| node.json(&asked("z", &json!({"payload": "x", "hitsAddend": hits})));
    refused(&hits(3), 429, "could never leave");
    // The second has the burst behind it, and the third would leave after more than a minute.
    assert_eq!([hits(2).status, hits(2).status], [200, 202]);
    let body = json!({"payload": "x", "id": ""});
    refused(&node.json(&asked("z", &body)), 400, "id has 1 to 128 bytes");
    refused(&node.json(&asked("z", &json!({"id": "x"}))), 400, "id is the name of a payload");
    // The same id is the same payload, however often it comes.
    let again = || node.json(&asked("z", &json!({"payload": "y", "id": "one"})));
    let first = again();
    assert_eq!((first.status, &first.json()["queued"]["id"]), (202, &json!("one")));
    assert_eq!(first.json()["queued"]["ahead"], 1);
    let second = again();
    assert_eq!(second.status, 202);
    assert_eq!(second.json()["queued"], json!({"queue": "emails", "id": "one"}));
    assert_eq!(hits(1).status, 202);
    refused(&hits(1), 429, "the queue emails is full, 3 wait");
    let mut link = Link::new(&redis);
    assert_eq!(link.length("waiting"), 3);
    // In a reservation, or beside a second queue.
    let mut reserve = asked("z", &json!({"maxWait": "1s"}));
    refused(&node.ask("POST", "/reserve", "", &reserve.to_string()), 400, "rule with a queue");
    let mut brings = asked("k", &json!({}));
    brings["descriptors"][0]["limit"] = json!({"requestsPerUnit": 9, "unit": "SECOND"});
    // A limit of the request takes the place of the queue's.
    assert_eq!(node.json(&brings).status, 200);
    reserve["payload"] = json!("x");
    refused(&node.ask("POST", "/reserve", "", &reserve.to_string()), 400, "which /json asks");
    let mut two = asked("z", &json!({"payload": "x"}));
    let descriptor = two["descriptors"][0].clone();
    two["descriptors"].as_array_mut().unwrap().push(descriptor);
    refused(&node.json(&two), 429, "");
    assert_eq!(node.metric("limiter_request_odd_parts_total{part=\"two_queues\"}"), 1);
    for (reason, count) in [("full", 1), ("never", 1), ("too_long", 0), ("no_answer", 0)] {
        assert_eq!(of_queue(&node, "refused_total", &format!(",reason=\"{reason}\"")), count);
    }
    node.server.stop().unwrap();
}

#[test]
fn what_would_wait_too_long_is_refused_before_it_does() {
    let Some(redis) = Redis::start(&[]) else { return };
    let node = node(&redis, "a", &rules(", age: 15s", "rate: 6/min, burst: 1"));
    assert_eq!([send(&node, "x", "1").status, send(&node, "x", "2").status], [200, 202]);
    let late = send(&node, "x", "3");
    assert_eq!(late.status, 429);
    let why = late.json()["notQueued"].as_str().unwrap().to_owned();
    assert!(why.starts_with("it would wait in the queue emails for longer than 15s"), "{why}");
    assert_eq!(of_queue(&node, "refused_total", ",reason=\"too_long\""), 1);
    node.server.stop().unwrap();
}

/// A request that waits will be done, so it counts for its other limits; one that is refused by the
/// queue does not.
#[test]
fn other_limits_count_what_waits_and_not_what_is_refused() {
    let Some(redis) = Redis::start(&[]) else { return };
    let other = "  - {key: user, rate_limit: {unit: day, requests_per_unit: 5}}\n";
    let rules = format!(
        "domain: d\nqueues: [{{name: emails, depth: 1}}]\ndescriptors:\n  - {{key: k, rate_limit: \
         {{rate: 2/min, burst: 1}}, action: {{queue: emails}}}}\n{other}"
    );
    let node = node(&redis, "a", &rules);
    let both = |payload: &str| {
        let mut both = asked("x", &json!({"payload": payload}));
        let user = json!({"entries": [{"key": "user", "value": "u"}]});
        both["descriptors"].as_array_mut().unwrap().push(user);
        let answer = node.json(&both);
        (answer.status, answer.json()["statuses"][1]["limitRemaining"].clone())
    };
    assert_eq!(both("passes"), (200, json!(4)));
    assert_eq!(both("waits"), (202, json!(3)));
    assert_eq!(both("full"), (429, json!(3)));
    // And what another limit refuses does not wait.
    let user =
        json!({"domain": "d", "descriptors": [{"entries": [{"key": "user", "value": "u"}]}]});
    assert_eq!((0..3).filter(|_| node.json(&user).status == 200).count(), 3);
    let over = both("over another");
    assert_eq!(over, (429, json!(0)));
    assert_eq!(Link::new(&redis).length("waiting"), 1);
    node.server.stop().unwrap();
}

/// Without Redis nothing waits, and the caller hears it. What waited is still there afterwards.
#[test]
fn without_redis_a_payload_is_refused_and_nothing_is_lost() {
    let Some(mut redis) = Redis::start(&["--appendonly", "yes"]) else { return };
    let node = node(&redis, "a", &rules("", "rate: 1/s, burst: 1"));
    // On a busy machine the first ones may come so late that they need not wait.
    let mut queued: Vec<String> = (0..6).map(|number| number.to_string()).collect();
    queued.retain(|payload| {
        let status = send(&node, "x", payload).status;
        assert!(status == 202 || status == 200, "{status}");
        status == 202
    });
    assert!(queued.len() > 2, "{queued:?}");
    redis.kill();
    let refused = send(&node, "x", "refused");
    assert_eq!(refused.status, 503);
    let why = refused.json()["notQueued"].as_str().unwrap().to_owned();
    assert!(why.contains("queue emails") && why.contains("ask again"), "{why}");
    let plain = node.json(&asked("x", &json!({})));
    assert_eq!(plain.status, 429);
    health(&node, "degraded: ");
    let on_partition = "limiter_request_on_partition_total{domain=\"d\",rule=\"k\",name=\"\",\
                        on_partition=\"closed\",reason=\"no_contact\"}";
    until("it is counted", || node.metric(on_partition) >= 1);
    redis.restart();
    health(&node, "OK");
    let (mut link, mut taken) = (Link::new(&redis), Vec::new());
    until("all leave", || {
        taken.extend(link.take("w", 100).unwrap_or_default());
        taken.len() == queued.len()
    });
    let payloads: Vec<String> = taken.iter().map(|entry| of(entry, "payload")).collect();
    assert_eq!(payloads, queued);
    never_faster(&taken.iter().map(left_at).collect::<Vec<_>>(), 1.0, 1.0);
    node.server.stop().unwrap();
}

/// Workers that stop reading do not find a heap when they come back: nothing more leaves after a
/// second. What gets too old meanwhile is a dead letter.
#[test]
fn nothing_leaves_while_no_worker_reads_and_what_is_too_old_is_a_dead_letter() {
    let Some(redis) = Redis::start(&[]) else { return };
    let node = node(&redis, "a", &rules(", age: 4s", "rate: 20/s, burst: 1"));
    let begin = Instant::now();
    let sent = (0..70).map(|number| send(&node, "x", &number.to_string()).status);
    let queued = sent.filter(|status| *status == 202).count();
    assert!(queued > 60, "{queued}");
    until("workers read nothing", || of_queue(&node, "unread", "") == 1);
    let noticed = begin.elapsed();
    let mut link = Link::new(&redis);
    until("the rest is too old", || link.length("waiting") == 0);
    let (ready, dead) = (link.all("ready"), link.all("dead"));
    assert_eq!(ready.len() + dead.len(), queued);
    // What the limit gives until it is noticed, and no less than a second of it.
    let most = usize::try_from(noticed.as_millis() / 50).unwrap() + 2;
    assert!((15..=most).contains(&ready.len()), "{} of at most {most}", ready.len());
    for entry in &dead {
        assert_eq!((of(entry, "reason"), of(entry, "attempt")), ("age".to_owned(), "1".to_owned()));
    }
    let all: Vec<String> = ready.iter().chain(&dead).map(|entry| of(entry, "payload")).collect();
    assert!(all.iter().map(|text| text.parse::<u32>().unwrap()).is_sorted(), "{all:?}");
    let count = u64::try_from(dead.len()).unwrap();
    until("they are counted", || of_queue(&node, "dead_total", ",reason=\"age\"") == count);
    assert!(!link.take("w", 1000).unwrap().is_empty());
    until("workers read again", || of_queue(&node, "unread", "") == 0);
    node.server.stop().unwrap();
}

/// A payload that nobody acknowledges comes back as often as the file says; then it is a dead
/// letter. Dead letters are bounded, too.
#[test]
fn what_nobody_acknowledges_comes_back_and_is_a_dead_letter_in_the_end() {
    let Some(redis) = Redis::start(&[]) else { return };
    let queue = ", depth: 3, attempts: 2, visibility: 1s";
    let node = node(&redis, "a", &rules(queue, "rate: 10/s, burst: 1"));
    let (mut link, mut seen) = (Link::new(&redis), Vec::new());
    let mut number = 0;
    until("dead letters are dropped", || {
        if send(&node, "x", &number.to_string()).status == 202 {
            number += 1;
        }
        let taken = link.take("w", 10).unwrap_or_default();
        seen.extend(taken.iter().map(|entry| (of(entry, "payload"), of(entry, "attempt"))));
        of_queue(&node, "dead_dropped_total", "") >= 2
    });
    let dead = link.all("dead");
    assert_eq!(dead.len(), 3);
    for entry in &dead {
        assert_eq!(of(entry, "reason"), "attempts");
        let attempts: Vec<&str> = seen
            .iter()
            .filter(|(payload, _)| *payload == of(entry, "payload"))
            .map(|(_, attempt)| attempt.as_str())
            .collect();
        assert_eq!(attempts, ["1", "2"]);
    }
    assert!(of_queue(&node, "back_total", "") >= 5);
    node.server.stop().unwrap();
}

/// What workers did.
#[derive(Default)]
struct Done {
    /// What they got: the id in the stream, the payload and the attempt.
    taken: Vec<(String, String, String)>,
    worked: HashSet<String>,
    deaths: u32,
}

/// Workers, one after the other: each takes some payloads, and many die with a part of them in
/// their hands.
fn dying_workers(socket: &Path, name: usize, done: &Mutex<Done>, stop: &AtomicBool) {
    let mut life = 0;
    while !stop.load(Ordering::Relaxed) {
        life += 1;
        let worker = format!("w-{name}-{life}");
        let mut link = Link::at(socket);
        for _ in 0..fastrand::u32(1..20) {
            let Some(taken) = link.take(&worker, fastrand::u32(1..10)) else {
                thread::sleep(Duration::from_millis(20));
                break;
            };
            let seen = taken
                .iter()
                .map(|entry| (entry.id.clone(), of(entry, "payload"), of(entry, "attempt")));
            done.lock().unwrap().taken.extend(seen);
            let dies_at = (fastrand::u32(..4) == 0).then(|| fastrand::usize(..=taken.len()));
            for entry in taken.iter().take(dies_at.unwrap_or(usize::MAX)) {
                // The work is done. An answer that is lost leaves open whether Redis knows it.
                done.lock().unwrap().worked.insert(of(entry, "payload"));
                let _unsure = link.acknowledge(&entry.id);
            }
            if dies_at.is_some() {
                done.lock().unwrap().deaths += 1;
                break;
            }
        }
    }
}

/// Ends the workers of a test, also where it fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Payloads of three keys go through workers that die at random, and a Redis that is killed and
/// comes back. Every payload that was queued is done; of each key first deliveries are in
/// order, and nothing leaves faster than the limit, deliveries that come back included.
#[test]
fn no_payload_is_lost_by_workers_that_die_and_a_redis_that_is_killed() {
    let always = ["--appendonly", "yes", "--appendfsync", "always"];
    let Some(mut redis) = Redis::start(&always) else { return };
    let rules = rules(", attempts: 1000, visibility: 1s", "rate: 50/s, burst: 10");
    let nodes = [node(&redis, "a", &rules), node(&redis, "b", &rules)];
    let (done, stop) = (Mutex::<Done>::default(), AtomicBool::new(false));
    let (mut queued, mut unsure, mut kills) = (Vec::new(), 0, 0);
    let socket = redis.socket();
    thread::scope(|scope| {
        let _ends = Ends(&stop);
        for name in 0..3 {
            let (socket, done, stop) = (&socket, &done, &stop);
            scope.spawn(move || dying_workers(socket, name, done, stop));
        }
        let (begin, mut number) = (Instant::now(), 0_usize);
        let mut next_kill = begin + Duration::from_millis(1500);
        // The number of payloads that workers report before they die depends on the machine.
        let enough = |queued: &[String]| {
            let done = done.lock().unwrap();
            let first = |key: &str| {
                let of_key = |(_, payload, attempt): &&(String, String, String)| {
                    payload.starts_with(key) && attempt == "1"
                };
                done.taken.iter().filter(of_key).count()
            };
            let all_keys = ["k0", "k1", "k2"].iter().all(|key| first(key) > 20);
            queued.len() > 100 && done.deaths > 10 && all_keys
        };
        while begin.elapsed() < Duration::from_secs(9)
            || (kills < 4 || !enough(&queued)) && begin.elapsed() < PATIENCE / 2
        {
            let payload = format!("k{} {number:06}", number % 3);
            let answer = send(&nodes[number % 2], &payload[..2], &payload);
            number += 1;
            thread::sleep(Duration::from_millis(1));
            match answer.status {
                202 => queued.push(payload),
                503 => unsure += 1,
                status => assert!(status == 200 || status == 429, "{}", answer.body),
            }
            if kills < 4 && Instant::now() >= next_kill {
                kills += 1;
                redis.kill();
                thread::sleep(Duration::from_millis(fastrand::u64(0..300)));
                redis.restart();
                next_kill = Instant::now() + Duration::from_millis(fastrand::u64(800..2000));
            }
        }
        let (begin, mut link) = (Instant::now(), Link::at(&socket));
        until("everything is done", || {
            let done = done.lock().unwrap();
            let missing = queued.iter().filter(|payload| !done.worked.contains(*payload));
            let missing: Vec<_> = missing.collect();
            if begin.elapsed() > PATIENCE * 4 / 5 {
                let lengths = ["waiting", "ready", "dead"].map(|place| link.length(place));
                let health = nodes[0].ask("GET", "/healthcheck", "", "").body;
                panic!("{missing:?} of {}; {lengths:?}; {health}", queued.len());
            }
            missing.is_empty()
        });
    });
    let mut done = done.into_inner().unwrap();
    let (count, worked) = (queued.len(), done.worked.len());
    println!(
        "{count} queued, {unsure} unsure, {worked} done, {kills} kills, {} deaths, \
         {} taken",
        done.deaths,
        done.taken.len()
    );
    assert!(count > 100 && done.deaths > 10 && kills == 4);
    assert_eq!(Link::new(&redis).length("dead"), 0);
    let of_id = |id: &str| {
        let (millis, number) = id.split_once('-').unwrap();
        (millis.parse::<u64>().unwrap(), number.parse::<u64>().unwrap())
    };
    done.taken.sort_by_key(|(id, ..)| of_id(id));
    for key in ["k0", "k1", "k2"] {
        let of_key = || done.taken.iter().filter(|(_, payload, _)| payload.starts_with(key));
        let first: Vec<&str> = of_key()
            .filter(|(.., attempt)| attempt == "1")
            .map(|(_, payload, _)| payload.as_str())
            .collect();
        assert!(first.len() > 20 && first.is_sorted(), "{key}: {first:?}");
        let times: Vec<u64> = of_key().map(|(id, ..)| of_id(id).0).collect();
        never_faster(&times, 50.0, 10.0);
    }
    for node in nodes {
        node.server.stop().unwrap();
    }
}

/// Another node goes on where the mover ends, and a change of the rate is in force at once: for
/// what waits already, too.
#[test]
fn another_node_goes_on_and_a_new_rate_is_in_force_for_what_waits() {
    let Some(redis) = Redis::start(&[]) else { return };
    let slow = rules(", age: 30day", "rate: 1/hour, burst: 1");
    let [a, b] = ["a", "b"].map(|name| node(&redis, name, &slow));
    assert_eq!(send(&a, "x", "0").status, 200);
    for number in 1..30 {
        assert_eq!(send(&b, "x", &number.to_string()).status, 202);
    }
    let fast = slow.replace("1/hour", "100/s");
    let mut link = Link::new(&redis);
    std::fs::write(a.directory.path().join("r.yaml"), &fast).unwrap();
    std::fs::write(b.directory.path().join("r.yaml"), &fast).unwrap();
    a.server.stop().unwrap();
    assert!(b.server.reload());
    let mut taken = Vec::new();
    until("all leave", || {
        taken.extend(link.take("w", 100).unwrap_or_default());
        taken.len() == 29
    });
    let payloads: Vec<u32> =
        taken.iter().map(|entry| of(entry, "payload").parse().unwrap()).collect();
    assert_eq!(payloads, (1..30).collect::<Vec<_>>());
    // A worker may be quicker than the node that hears from Redis what left.
    until("they are counted", || of_queue(&b, "left_total", "") == 29);
    b.server.stop().unwrap();
}

/// A rule with a queue needs a store, at the start and when the files are read again.
#[test]
fn without_a_store_there_is_no_queue() {
    let text = rules("", "rate: 1/s");
    let mut options = None;
    let node = started(|of| options = Some(of.clone()));
    std::fs::write(node.directory.path().join("r.yaml"), &text).unwrap();
    assert!(!node.server.reload());
    let error = limiter_requests::Server::start(&options.unwrap()).unwrap_err();
    let lines = error.lines();
    assert!(lines[0].contains(":3:") && lines[0].contains("--cluster"), "{lines:?}");
    node.server.stop().unwrap();
}
