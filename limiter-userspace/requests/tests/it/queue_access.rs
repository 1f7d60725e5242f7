//! What limiter and workers need of the access lists of Redis, as the pages have it.

use serde_json::json;

use crate::cluster::{as_node, health};
use crate::queues::{Link, asked, of, of_queue, rules, until};
use crate::redis_server::Server as Redis;
use crate::running::started;

/// The commands of an access list that a page gives a user, which end with `last`.
fn commands<'a>(page: &'a str, first: &str, last: &str) -> Vec<&'a str> {
    let begin = page.find(first).unwrap();
    let end = begin + page[begin..].find(last).unwrap() + last.len();
    page[begin..end].split_whitespace().collect()
}

/// The access lists of the pages are enough: for what passes, waits, leaves, comes back and dies,
/// and for another rate.
#[test]
fn the_access_lists_of_the_pages_are_enough() {
    let Some(redis) = Redis::start(&["--appendonly", "yes"]) else { return };
    let mut admin = Link::new(&redis);
    let setup = include_str!("../../../../docs/cluster-setup.md");
    let page = include_str!("../../../../docs/queue.md");
    let mut limiter = vec!["ACL", "SETUSER", "limiter", "on", ">pw", "~rl:*", "-@all"];
    limiter.extend(commands(setup, "+evalsha", "+xrevrange"));
    limiter.extend(commands(page, "+exists", "+zunionstore"));
    let mut worker = vec!["ACL", "SETUSER", "worker", "on", ">pw", "~rl:*", "-@all"];
    worker.extend(commands(page, "+xreadgroup", "+xack"));
    for words in [limiter, worker] {
        admin.ask::<String>(&words).unwrap();
    }
    let rules = rules(", age: 3s, attempts: 2, visibility: 1s", "rate: 8/s, burst: 2");
    let node = started(|options| {
        as_node(options, &redis, "a", 1, &rules);
        let password = redis.directory().join("password");
        std::fs::write(&password, "pw\n").unwrap();
        let redis = &mut options.cluster.as_mut().unwrap().redis;
        (redis.user, redis.password) = (Some("limiter".to_owned()), Some(password));
    });
    let mut link = Link::new(&redis);
    link.ask::<String>(&["AUTH", "worker", "pw"]).unwrap();
    let (mut queued, mut taken) = (0, 0);
    until("payloads die of age and of attempts", || {
        for _ in 0..3 {
            let id = json!({"payload": "p", "id": queued.to_string()});
            queued += u64::from(node.json(&asked("x", &id)).status == 202);
        }
        if queued > 20 {
            std::fs::write(node.directory.path().join("r.yaml"), rules.replace("8/s", "6/s"))
                .unwrap();
            assert!(node.server.reload());
        }
        // One of two is acknowledged, and none the second time. In the end nobody reads.
        let read = if queued < 40 { link.take("w", 2) } else { None };
        for entry in read.unwrap_or_default() {
            taken += 1;
            if taken % 2 == 0 && of(&entry, "attempt") == "1" {
                assert!(link.acknowledge(&entry.id).unwrap());
            }
        }
        of_queue(&node, "dead_total", ",reason=\"attempts\"") > 0
            && of_queue(&node, "dead_total", ",reason=\"age\"") > 0
    });
    health(&node, "OK");
    let denied: Vec<redis::Value> = admin.ask(&["ACL", "LOG"]).unwrap();
    assert!(denied.is_empty(), "{denied:?}");
    node.server.stop().unwrap();
}
