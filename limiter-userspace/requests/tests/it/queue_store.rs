//! What somebody does to a queue in Redis besides limiter: nothing that was accepted goes without a
//! word.

use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::cluster::{as_node, health};
use crate::queues::{Entry, Link, asked, key, of, of_queue, rules, until};
use crate::redis_server::Server as Redis;
use crate::running::{Running, started};

const STREAM: &str = "rl:requests:queue:{emails}:ready";

fn node(redis: &Redis, name: &str, rules: &str) -> Running {
    started(|options| as_node(options, redis, name, 1, rules))
}

/// Sends payloads for one key until so many of them wait; returns those.
fn queued(node: &Running, count: usize) -> Vec<String> {
    let (mut all, mut sent) = (Vec::new(), 0_u32);
    until("so many wait", || {
        let payload = format!("p{sent}");
        sent += 1;
        if node.json(&asked("x", &json!({"payload": payload}))).status == 202 {
            all.push(payload);
        }
        all.len() >= count
    });
    all
}

/// Reads until so many were read.
fn read(link: &mut Link, worker: &str, count: usize) -> Vec<Entry> {
    let mut all = Vec::new();
    until("workers get them", || {
        all.extend(link.take(worker, 100).unwrap_or_default());
        all.len() >= count
    });
    all
}

fn payloads(entries: &[Entry]) -> Vec<String> {
    let mut all: Vec<String> = entries.iter().map(|entry| of(entry, "payload")).collect();
    all.sort();
    all
}

/// True if limiter has so many in the group.
fn is_taken_over(link: &mut Link, count: usize) -> bool {
    let words = ["XPENDING", STREAM, "workers", "-", "+", "1000", "limiter"];
    link.ask::<Vec<redis::Value>>(&words).unwrap().len() == count
}

/// A worker acknowledges some of what it has, and is removed from the group (XGROUP DELCONSUMER),
/// as cleaners of dead workers do. The rest leaves again; what was acknowledged does not.
#[test]
fn a_worker_that_is_removed_takes_no_payload_with_it() {
    let Some(redis) = Redis::start(&["--appendonly", "yes"]) else { return };
    let node = node(&redis, "a", &rules(", visibility: 6s", "rate: 10/s, burst: 1"));
    let sent = queued(&node, 8);
    let mut link = Link::new(&redis);
    let taken = read(&mut link, "dead", sent.len());
    until("limiter has taken them over", || is_taken_over(&mut link, sent.len()));
    let (done, rest) = taken.split_at(3);
    for entry in done {
        assert!(link.acknowledge(&entry.id).unwrap());
    }
    let had: i64 = link.ask(&["XGROUP", "DELCONSUMER", STREAM, "workers", "dead"]).unwrap();
    assert_eq!(had, 0, "the worker had nothing by itself");
    let again = read(&mut link, "other", rest.len());
    assert_eq!(payloads(&again), payloads(rest));
    assert!(again.iter().all(|entry| of(entry, "attempt") == "2"));
    for entry in &again {
        assert!(link.acknowledge(&entry.id).unwrap());
    }
    until("the stream is empty", || link.length("ready") == 0);
    assert_eq!(of_queue(&node, "lost_total", ""), 0);
    assert_eq!(of_queue(&node, "taken_over_total", ""), 0);
    health(&node, "OK");
    node.server.stop().unwrap();
}

/// A worker reads and is removed before limiter looks: what was read then is in doubt, and leaves
/// again. That is counted.
#[test]
fn a_worker_that_is_removed_at_once_takes_no_payload_with_it() {
    let Some(redis) = Redis::start(&[]) else { return };
    let node = node(&redis, "a", &rules(", visibility: 1s", "rate: 10/s, burst: 1"));
    let sent = queued(&node, 8);
    let mut link = Link::new(&redis);
    until("all are there to be read", || link.length("ready") == sent.len() as u64);
    let script = "redis.call('XREADGROUP', 'GROUP', 'workers', 'short', 'STREAMS', KEYS[1], '>') \
                  return redis.call('XGROUP', 'DELCONSUMER', KEYS[1], 'workers', 'short')";
    let had: usize = link.ask(&["EVAL", script, "1", STREAM]).unwrap();
    assert_eq!(had, sent.len());
    let again = read(&mut link, "other", sent.len());
    let mut expected = sent.clone();
    expected.sort();
    assert_eq!(payloads(&again), expected);
    until("it is counted", || of_queue(&node, "taken_over_total", "") == sent.len() as u64);
    node.server.stop().unwrap();
}

/// The group is deleted, and made anew by a client library that skips what is there (`$`): limiter
/// gives all that nobody acknowledged to workers again.
#[test]
fn a_group_that_is_made_anew_elsewhere_loses_no_payload() {
    let Some(redis) = Redis::start(&[]) else { return };
    let node = node(&redis, "a", &rules(", visibility: 3s", "rate: 10/s, burst: 1"));
    let sent = queued(&node, 10);
    let mut link = Link::new(&redis);
    let taken = read(&mut link, "w", 3);
    until("all have left", || of_queue(&node, "left_total", "") == sent.len() as u64);
    until("what was read is limiter's", || is_taken_over(&mut link, taken.len()));
    let script = "redis.call('XGROUP', 'DESTROY', KEYS[1], 'workers') \
                  return redis.call('XGROUP', 'CREATE', KEYS[1], 'workers', '$')";
    link.ask::<String>(&["EVAL", script, "1", STREAM]).unwrap();
    let again = read(&mut link, "other", sent.len());
    let mut expected = sent.clone();
    expected.sort();
    assert_eq!(payloads(&again), expected);
    assert_eq!(of_queue(&node, "set_back_total", ""), 1);
    // Deleted alone: it is there again, and nothing is left out.
    link.ask::<i64>(&["XGROUP", "DESTROY", STREAM, "workers"]).unwrap();
    let again = read(&mut link, "third", sent.len());
    assert_eq!(payloads(&again), expected);
    assert_eq!(of_queue(&node, "lost_total", ""), 0);
    node.server.stop().unwrap();
}

/// Keys that are deleted or evicted, and a Redis that begins anew, are losses: they are counted and
/// shown, with what there was before.
#[test]
fn what_is_gone_from_the_store_is_counted_and_said() {
    let Some(redis) = Redis::start(&[]) else { return };
    let node = node(&redis, "a", &rules(", age: 30day", "rate: 1/hour, burst: 1"));
    let node_health = |words: &str| {
        until(words, || node.ask("GET", "/healthcheck", "", "").body.contains(words));
    };
    let waiting = |count: usize| {
        until("the mover has seen them", || {
            of_queue(&node, "payloads", ",place=\"waiting\"") == count as u64
        });
    };
    let first = queued(&node, 6).len();
    waiting(first);
    let mut link = Link::new(&redis);
    link.ask::<i64>(&["DEL", &key("waiting")]).unwrap();
    until("it is counted", || of_queue(&node, "lost_total", "") == first as u64);
    node_health("payloads of the queue emails were gone from Redis");
    let second = queued(&node, 4).len();
    waiting(second);
    link.ask::<String>(&["FLUSHALL"]).unwrap();
    until("it is counted", || of_queue(&node, "lost_total", "") == (first + second) as u64);
    assert_eq!(of_queue(&node, "set_back_total", ""), 1);
    node_health(&format!("of {second} payloads that waited"));
    node_health("there are 0, 0 and 0");
    node.server.stop().unwrap();
}

/// The answer of a turn comes too late, because Redis stood still: what left with it is counted
/// with the next one.
#[test]
fn what_left_is_counted_though_an_answer_came_too_late() {
    let Some(redis) = Redis::start(&[]) else { return };
    let node = node(&redis, "a", &rules("", "rate: 10/s, burst: 1"));
    let (mut link, mut taken, mut sent) = (Link::new(&redis), 0, 0);
    for _ in 0..3 {
        sent += queued(&node, 6).len();
        // A call is on its way whenever something waits.
        redis.signal("STOP");
        thread::sleep(Duration::from_millis(700));
        redis.signal("CONT");
    }
    until("all leave", || {
        taken += link.take("w", 100).unwrap_or_default().len();
        taken == sent
    });
    until("they are counted", || of_queue(&node, "left_total", "") == sent as u64);
    node.server.stop().unwrap();
}

/// The settings on which a queue rests are looked at, by whichever command the access list allows;
/// that they cannot be looked at is said, too.
#[test]
fn a_store_that_does_not_keep_what_it_is_given_is_said() {
    let Some(redis) = Redis::start(&["--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"])
    else {
        return;
    };
    let mut admin = Link::new(&redis);
    let password = redis.directory().join("password");
    std::fs::write(&password, "pw\n").unwrap();
    for (refused, is_seen) in [("-config", true), ("-info", true), ("-config -info", false)] {
        let mut words = vec!["ACL", "SETUSER", "limiter", "reset", "on", ">pw", "~rl:*", "+@all"];
        words.extend(refused.split(' '));
        admin.ask::<String>(&words).unwrap();
        let node = started(|options| {
            as_node(options, &redis, "a", 1, &rules("", "rate: 1/s, burst: 1"));
            let redis = &mut options.cluster.as_mut().unwrap().redis;
            (redis.user, redis.password) = (Some("limiter".to_owned()), Some(password.clone()));
        });
        let (policy, appends) =
            if is_seen { ("allkeys-lru", "no") } else { ("unknown", "unknown") };
        let page = || node.ask("GET", "/metrics", "", "").body;
        for (setting, value) in [("maxmemory-policy", policy), ("appendonly", appends)] {
            let labels = format!("setting=\"{setting}\",value=\"{value}\"}} 0");
            until(&labels, || page().contains(&labels));
        }
        let words = [
            "forgets payloads of queues when its memory is full (maxmemory-policy allkeys-lru)",
            "loses payloads of queues",
        ];
        for words in words {
            let shown = || node.ask("GET", "/healthcheck", "", "").body.contains(words);
            if is_seen {
                until(words, shown);
            } else {
                assert!(!shown(), "nobody knows it");
            }
        }
        node.server.stop().unwrap();
    }
    // As the pages ask for it.
    for set in [["maxmemory-policy", "noeviction"], ["appendonly", "yes"]] {
        admin.ask::<String>(&["CONFIG", "SET", set[0], set[1]]).unwrap();
    }
    let node = node(&redis, "b", &rules("", "rate: 1/s, burst: 1"));
    until("they are looked at", || {
        let page = node.ask("GET", "/metrics", "", "").body;
        page.contains("value=\"noeviction\"} 1") && page.contains("value=\"yes\"} 1")
    });
    health(&node, "OK");
    node.server.stop().unwrap();
}
