//! Limits that nodes share, in the program and in the model: a lease decides while it lives, and
//! what is written of it is what the daemon calculates with. A key asks for leases when it needs
//! them.

use anyhow::{Context as _, Result};
use limiter_common::bucket::Slot;
use limiter_common::time::Ticks;
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::{Ask, BUDGET_LEASES, KeyLeases, lease_of_budget};
use limiter_datapath::SourceTable;
use limiter_tests::packet::{Frame, Transport};
use limiter_tests::pair::Pair;
use limiter_tests::program::Program;
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

/// The rule of a limit by source, of which each node has ten packets without a lease.
const BY_SOURCE: &str = "descriptors:
  - key: remote_address
    scope: cluster
    cluster: {sync: 100ms, share: 30%, share_of_burst: 33.4%}
    rate_limit: {unit: second, requests_per_unit: 90, burst: 90}
";

/// A source asks once half of its share is used, once, and not for one packet; with a lease that
/// decides, and without it the share does again.
#[test]
fn a_source_asks_once_half_of_its_share_is_used() -> Result<()> {
    require_root();
    let mut pair = Pair::load(BY_SOURCE)?;
    assert_eq!(passed(&mut pair, 5)?, 5);
    assert_eq!(pair.take_asks()?, []);
    assert_eq!(passed(&mut pair, 20)?, 5, "ten of its share in all");
    let asks = pair.take_asks()?;
    let [ask] = asks[..] else { anyhow::bail!("{asks:?}") };
    let first = BUDGET_LEASES + 7;
    let end = until(&pair, 500);
    pair.grant(first, 25, end)?;
    pair.set_leased(&ask.key, Some(KeyLeases::new(Slot::new(ask.slot), first)))?;
    assert_eq!(passed(&mut pair, 40)?, 25);
    let lease = pair.lease(first)?;
    assert_eq!((lease.used, lease.denied), (25, 15));
    pair.at(end)?;
    assert_eq!(passed(&mut pair, 40)?, 4, "the share of half a second: 9/s");
    assert_eq!(pair.take_asks()?, [], "it has asked");
    Ok(())
}

/// A source that another node has leases of asks with its first packet; one that lost its leases
/// asks anew; leases of another record are none.
#[test]
fn a_source_asks_again_where_it_must() -> Result<()> {
    require_root();
    let mut pair = Pair::load(BY_SOURCE)?;
    assert_eq!(passed(&mut pair, 8)?, 8);
    let ask = *pair.take_asks()?.first().context("nothing asked")?;
    pair.set_leased(&ask.key, Some(KeyLeases::ELSEWHERE))?;
    assert_eq!(passed(&mut pair, 1)?, 1);
    assert_eq!(pair.take_asks()?, [ask]);
    pair.set_leased(&ask.key, None)?;
    assert_eq!(passed(&mut pair, 1)?, 1);
    assert_eq!(pair.take_asks()?, [ask]);
    let first = BUDGET_LEASES;
    let end = until(&pair, 500);
    pair.grant(first, 25, end)?;
    pair.set_leased(&ask.key, Some(KeyLeases::new(Slot::new(ask.slot + 1), first)))?;
    assert_eq!(passed(&mut pair, 5)?, 0, "the share is used up");
    assert_eq!(pair.lease(first)?.used, 0);
    Ok(())
}

/// A window by source passes nothing of a source without leases: the store counts all of the quota.
/// Once the leases of one have ended, this node's part of it holds.
#[test]
fn a_window_by_source_waits_for_its_leases() -> Result<()> {
    require_root();
    let rate = "{unit: second, requests_per_unit: 90, burst: 90}";
    let window = "{unit: minute, requests_per_unit: 90, algorithm: fixed_window}";
    let mut pair = Pair::load(&BY_SOURCE.replace(rate, window))?;
    assert_eq!(passed(&mut pair, 5)?, 0);
    let asks = pair.take_asks()?;
    let [ask] = asks[..] else { anyhow::bail!("{asks:?}") };
    let end = until(&pair, 500);
    pair.grant(BUDGET_LEASES, 7, end)?;
    pair.set_leased(&ask.key, Some(KeyLeases::new(Slot::new(ask.slot), BUDGET_LEASES)))?;
    assert_eq!(passed(&mut pair, 20)?, 7);
    pair.at(end)?;
    assert_eq!(passed(&mut pair, 80)?, 30, "90 over three nodes");
    pair.set_leased(&ask.key, None)?;
    assert_eq!(passed(&mut pair, 1)?, 0);
    assert_eq!(pair.take_asks()?, [ask]);
    Ok(())
}

/// Sources that find no room for a bucket share one, and use no lease of the source before them.
#[test]
fn the_overflow_bucket_has_no_leases() -> Result<()> {
    require_root();
    let mut program = Program::load_sized(SourceTable::Hash, 64, 16, 64)?;
    program.among_nodes();
    program.apply_file(BY_SOURCE)?;
    let frame = |source: u8| Frame::ipv4([192, 0, 2, source], [198, 51, 100, 1]).build();
    let mut now = 1_000_000_000;
    let mut pass = |program: &mut Program, source: u8| -> Result<bool> {
        now += 1_000;
        program.set_time(Ticks::from_nanos(now))?;
        Ok(program.run(&frame(source), 1)? == Verdict::Pass)
    };
    // The first one asks; all have something to owe, so none leaves.
    for source in (0..16).cycle().take(16 * 8) {
        pass(&mut program, source)?;
    }
    let asks = program.leases()?.take_asks();
    let is_first = |ask: &&Ask| ask.key.source[1].to_ne_bytes()[7] == 0;
    let ask = asks.iter().find(is_first).context("the first did not ask")?;
    program.lease(BUDGET_LEASES)?.grant(1_000_000, Ticks::from_nanos(1 << 50));
    let leases = KeyLeases::new(Slot::new(ask.slot), BUDGET_LEASES);
    program.leases()?.set_leased(&ask.key, Some(leases))?;
    let (mut first, mut others) = (0, 0);
    for other in 100..150 {
        first += u64::from(pass(&mut program, 0)?);
        others += u64::from(pass(&mut program, other)?);
    }
    assert_eq!((first, program.lease(BUDGET_LEASES)?.read().used), (50, 50));
    assert!(others <= 10, "{others} of a share of ten");
    Ok(())
}

/// A limit without a share passes nothing before it has a lease, and asks with the first packet.
#[test]
fn a_source_without_a_share_asks_with_its_first_packet() -> Result<()> {
    require_root();
    let rules = BY_SOURCE.replace("share: 30%, share_of_burst: 33.4%", "on_partition: closed");
    let mut pair = Pair::load(&rules)?;
    assert_eq!(passed(&mut pair, 3)?, 0);
    let asks = pair.take_asks()?;
    assert_eq!(asks.len(), 1);
    let end = until(&pair, 500);
    pair.grant(BUDGET_LEASES, 2, end)?;
    let leases = KeyLeases::new(Slot::new(asks[0].slot), BUDGET_LEASES);
    pair.set_leased(&asks[0].key, Some(leases))?;
    assert_eq!(passed(&mut pair, 3)?, 2);
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
