//! Limits that nodes share, in the program and in the model: a lease decides while it lives, and
//! what is written of it is what the daemon calculates with.

use anyhow::Result;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::lease_of_budget;
use limiter_tests::packet::{Frame, Transport};
use limiter_tests::pair::Pair;
use limiter_tests::root::require_root;

/// The lease of the first limit of the only budget.
const LEASE: u32 = lease_of_budget(0, 0);

fn rules(cluster: &str) -> String {
    format!(
        "budgets:
  - name: customer
    scope: cluster
    cluster: {{sync: 100ms, {cluster}}}
    rate_limit: {{unit: second, requests_per_unit: 90, burst: 90}}
descriptors:
  - {{key: remote_address, value: 192.0.2.0/24, budget: customer}}
"
    )
}

/// A packet with a port: a first fragment would not do.
fn packet() -> Vec<u8> {
    Frame::ipv4([192, 0, 2, 1], [198, 51, 100, 1])
        .transport(Transport::Udp { source: 1, destination: 53 })
        .build()
}

fn passed(pair: &mut Pair, packets: usize) -> Result<usize> {
    let reasons = pair.reasons_of(&packet(), packets)?;
    Ok(reasons.into_iter().filter(|reason| *reason == Reason::Conforming).count())
}

fn until(pair: &Pair, millis: u64) -> Ticks {
    Ticks::from_nanos(pair.now().as_nanos() + millis * 1_000_000)
}

/// A lease passes what was granted and no more; refused packets use nothing and are counted.
#[test]
fn a_lease_passes_what_was_granted() -> Result<()> {
    require_root();
    let mut pair = Pair::load(&rules("on_partition: closed"))?;
    let end = until(&pair, 500);
    pair.grant(LEASE, 7, end)?;
    assert_eq!(passed(&mut pair, 10)?, 7);
    let lease = pair.lease(LEASE)?;
    assert_eq!((lease.used, lease.denied), (7, 3));
    pair.grant(LEASE, 5, end)?;
    assert_eq!(passed(&mut pair, 10)?, 5);
    assert_eq!(pair.lease(LEASE)?.used, 12);
    Ok(())
}

/// Without a living lease a node has its share, all of the limit, or nothing; a lease that ends
/// does so to the tick, and units left in it are no use any more.
#[test]
fn what_passes_without_a_lease_is_the_choice_of_the_rule() -> Result<()> {
    require_root();
    // A share of a third of the burst: among three nodes, 10 packets.
    for (choice, expected) in [
        ("share: 30%, share_of_burst: 33.4%, on_partition: share", 10),
        ("on_partition: open", 90),
        ("on_partition: closed", 0),
    ] {
        let mut pair = Pair::load(&rules(choice))?;
        let end = until(&pair, 500);
        pair.grant(LEASE, 1_000_000, end)?;
        assert_eq!(passed(&mut pair, 20)?, 20, "{choice}");
        pair.at(Ticks::new(end.get() - 32))?;
        assert_eq!(passed(&mut pair, 20)?, 20, "{choice}");
        pair.at(end)?;
        assert_eq!(passed(&mut pair, 200)?, expected, "{choice}");
        assert_eq!(pair.lease(LEASE)?.used, 40, "{choice}");
    }
    Ok(())
}

/// A packet that another limit drops uses nothing of a lease.
#[test]
fn a_dropped_packet_costs_no_quota() -> Result<()> {
    require_root();
    let rules = rules("on_partition: closed")
        + "  - {key: remote_address, value: 192.0.2.1, descriptors: [{key: destination_port, \
           rate_limit: {unit: hour, requests_per_unit: 3}}]}\n";
    let mut pair = Pair::load(&rules)?;
    let end = until(&pair, 500);
    pair.grant(LEASE, 100, end)?;
    let reasons = pair.reasons_of(&packet(), 10)?;
    assert_eq!(reasons.iter().filter(|reason| **reason == Reason::OverLimit).count(), 7);
    assert_eq!(pair.lease(LEASE)?.used, 3);
    Ok(())
}

/// A budget that nodes begin to share, or end to, begins used up: what passed by its lease is not
/// in a bucket of this node.
#[test]
fn a_budget_that_changes_its_scope_begins_used_up() -> Result<()> {
    require_root();
    let shared = rules("on_partition: open");
    let alone = shared
        .replace("scope: cluster", "scope: node")
        .replace("    cluster: {sync: 100ms, on_partition: open}\n", "");
    let mut pair = Pair::load(&shared)?;
    let end = until(&pair, 500);
    pair.grant(LEASE, 40, end)?;
    assert_eq!(passed(&mut pair, 40)?, 40);
    pair.apply(&alone)?;
    assert_eq!(passed(&mut pair, 90)?, 0);
    pair.after(1_100_000_000)?;
    assert_eq!(passed(&mut pair, 200)?, 90);
    pair.apply(&shared)?;
    assert_eq!(passed(&mut pair, 90)?, 0);
    pair.after(1_100_000_000)?;
    assert_eq!(passed(&mut pair, 200)?, 90);
    Ok(())
}
