//! Slots of a real cluster that move from server to server under load: the bound holds in every
//! window, and what is below it passes.

use std::thread::sleep;
use std::time::Duration;

use crate::load::{Load, passes};
use crate::node::{Node, budget};
use crate::shards::{Shards, TAGS};

/// Units a second that each of two nodes is offered of limits of 1000 over both: more, and less.
const OVER: u64 = 1500;
const BELOW: u64 = 400;
const LIMITS: u32 = 8;

#[test]
fn slots_that_move_under_load_cost_no_unit_beyond_the_bound() {
    let tags: [&[&str]; 3] = [&TAGS[..2], &TAGS[2..4], &TAGS[4..]];
    let Some(mut shards) = Shards::start(&tags, 0, &[]) else { return };
    let nodes = ["a", "b"].map(|name| Node::over(name, shards.settings(&[0]), 8));
    let names: Vec<String> = (0..LIMITS).map(|limit| format!("customer-{limit}")).collect();
    for node in &nodes {
        let rules = names.iter().zip(0..).map(|(name, limit)| budget(name, limit));
        node.cluster.set_rules(rules.collect::<Vec<_>>().into(), 1);
    }
    let rates: Vec<u64> =
        (0..LIMITS).map(|limit| if limit % 2 == 0 { OVER } else { BELOW }).collect();
    let load = Load::start(&nodes, &rates);
    passes(&nodes, &[0, 1, 2, 3, 4, 5, 6, 7]);
    sleep(Duration::from_secs(1));
    let errors =
        |shards: &mut Shards, code: &str| -> u64 { (0..3).map(|at| shards.errors(at, code)).sum() };
    let before = errors(&mut shards, "MOVED");
    sleep(Duration::from_secs(1));
    assert_eq!(errors(&mut shards, "MOVED"), before, "each call goes to its server at once");

    let slots = TAGS.map(|tag| shards.slot(tag));
    let counts = load.counts();
    let mut moves = 0;
    for turn in 0..12 {
        let slot = slots[turn % slots.len()];
        let from = shards.owner(slot);
        shards.reshard(slot, from, (from + 1 + turn % 2) % 3);
        moves += 1;
        sleep(Duration::from_millis(300));
    }
    let quick = load.since(&counts);
    // Slots that take their time, as those of many keys: keys are on both servers for a while.
    let counts = load.counts();
    for slot in slots {
        let from = shards.owner(slot);
        let to = (from + 1) % 3;
        shards.open(slot, from, to);
        sleep(Duration::from_millis(300));
        shards.migrate(slot, from, to, 1);
        sleep(Duration::from_millis(300));
        while shards.migrate(slot, from, to, 100) > 0 {}
        sleep(Duration::from_millis(300));
        shards.close(slot, from, to);
        moves += 1;
    }
    let slow = load.since(&counts);
    sleep(Duration::from_millis(500));
    passes(&nodes, &[0, 1, 2, 3, 4, 5, 6, 7]);
    let calls = nodes[0].cluster.status();
    let meters = load.end();
    let reported = ["MOVED", "ASK", "TRYAGAIN"].map(|code| errors(&mut shards, code));
    println!(
        "{moves} slots moved; MOVED, ASK, TRYAGAIN: {reported:?}; {} of {} calls of a node failed",
        calls.failed, calls.calls
    );
    for (limit, meter) in meters.iter().enumerate() {
        println!(
            "limit {limit}: {:?} offered and passed while slots moved, {:?} while slots that take \
             their time did, worst window {} over 1000/s",
            quick[limit],
            slow[limit],
            meter.excess()
        );
    }
    assert!(
        reported[0] > before && reported[1] > 0 && reported[2] > 0,
        "not all came to pass: {reported:?}"
    );
    for (limit, meter) in meters.iter().enumerate() {
        assert!(meter.excess() <= 1000, "limit {limit}: {}", meter.excess());
        let (offered, passed) = quick[limit];
        let due = if rates[limit] == OVER { offered / 3 } else { offered };
        // Beside other tests on two cores, 94 % were seen; alone, all below the limit.
        assert!(passed >= due * 85 / 100, "limit {limit}: {passed} of {due}");
        let (offered, passed) = slow[limit];
        let due = if rates[limit] == OVER { offered / 3 } else { offered };
        assert!(passed >= due * 60 / 100, "limit {limit}: {passed} of {due}");
    }
    for node in nodes {
        node.cluster.stop();
    }
}
