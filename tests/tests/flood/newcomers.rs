//! Conforming sources that are first seen amid a flood over full tables get an entry when they come
//! back, and the flood passes no more than is published.

use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::EntryKind;
use limiter_datapath::SourceTable;
use limiter_tests::program::SOURCE_STORES;

use super::scene::{Known, NANOS, Scene, Spoofed};

const HASH: SourceTable = SourceTable::Hash;
const LINES: SourceTable = SourceTable::Lines;

const RULES: &str = "descriptors: [{key: remote_address, rate_limit: {unit: second, \
                     requests_per_unit: 2000, burst: 100}}]";

const ENTRIES: u32 = 16_384;

/// Time that newcomers are looked at.
const SECONDS: u64 = 10;

/// Newcomers at 20 packets a second, and as many at 1.
const NEWCOMERS: u8 = 50;

/// The part that passed, in packets of 10,000.
#[derive(Clone, Copy, Debug)]
struct Passed {
    fast: u64,
    slow: u64,
    flood: u64,
}

/// Sends newcomers amid a flood of `rate` packets a second, over a table that another one has
/// filled.
fn newcomers(store: SourceTable, entries: u32, rate: u64, spoofed: &[Spoofed]) -> Passed {
    newcomers_at(store, entries, rate, spoofed, |rate, host| {
        [172, rate, host, host.wrapping_mul(37)]
    })
}

fn newcomers_at(
    store: SourceTable,
    entries: u32,
    rate: u64,
    spoofed: &[Spoofed],
    address: impl Fn(u8, u8) -> [u8; 4],
) -> Passed {
    let mut scene = Scene::new(store, entries, 1, RULES);
    let fill = u64::from(entries).max(100_000);
    scene.flood(fill, 2, &mut []);
    // Short, so that packets of one newcomer do not come at once.
    scene.pace = NANOS / 40;
    scene.spoof(spoofed);
    scene.flood(rate, 1, &mut []);
    let at = |rate: u8| {
        let (start, address) = (scene.now(), &address);
        (0..NEWCOMERS)
            .map(move |host| Known::from(start, address(rate, host), NANOS / u64::from(rate)))
    };
    let mut newcomers: Vec<Known> = at(20).chain(at(1)).collect();
    let passed =
        |scene: &Scene| scene.packets(Reason::Conforming) + scene.packets(Reason::Aggregate);
    let before = passed(&scene);
    scene.flood(rate, SECONDS, &mut newcomers);
    let ours: u64 = newcomers.iter().map(|newcomer| newcomer.passed).sum();
    let flood = passed(&scene) - before - ours;
    let times = spoofed.iter().map(|sources| sources.times).max().unwrap();
    if spoofed.iter().all(|sources| sources.hosts == [255; 4]) {
        // Of 32,768 new sources, one is taken for another that came before.
        let budget = scene.budget(SECONDS, times) + rate * SECONDS / 32_768;
        assert!(flood <= budget, "the flood passed {flood} of {budget}");
    }
    let (fast, slow) = newcomers.split_at(NEWCOMERS.into());
    let share = |newcomers: &[Known]| {
        let sum = |of: fn(&Known) -> u64| newcomers.iter().map(of).sum::<u64>();
        10_000 * sum(|newcomer| newcomer.passed) / sum(|newcomer| newcomer.sent)
    };
    let flood = 10_000 * flood / (rate * SECONDS);
    let passed = Passed { fast: share(fast), slow: share(slow), flood };
    println!("{store:?}, {entries} entries, {rate}/s {spoofed:?}: {passed:?}");
    passed
}

/// Fails if less passed of newcomers, or more of the flood.
fn held(passed: Passed, least: Passed) {
    let held = passed.fast >= least.fast && passed.slow >= least.slow;
    assert!(held && passed.flood <= least.flood, "{passed:?}, not {least:?}");
}

/// Entries go to who comes back.
#[test]
fn newcomers_lose_a_packet_in_a_flood_that_does_not_come_back() {
    for store in SOURCE_STORES {
        let passed = newcomers(store, ENTRIES, 100_000, &[Spoofed::ONCE]);
        held(passed, Passed { fast: 9_940, slow: 8_900, flood: 105 });
    }
}

#[test]
fn newcomers_lose_a_packet_in_a_flood_of_a_million_a_second() {
    let passed = newcomers(HASH, ENTRIES, 1_000_000, &[Spoofed::ONCE]);
    held(passed, Passed { fast: 9_940, slow: 8_800, flood: 12 });
}

/// 100,000, each address twice, 0.1 s apart. 100,000, each address 4 times, 0.1 s apart. 100,000,
/// each address 16 times, 0.1 s apart.
#[test]
fn newcomers_outlast_a_flood_that_comes_back() {
    let often = |store, times, least| {
        held(newcomers(store, ENTRIES, 100_000, &[Spoofed::often(times)]), least);
    };
    often(HASH, 2, Passed { fast: 9_900, slow: 8_300, flood: 220 });
    often(HASH, 4, Passed { fast: 9_750, slow: 7_800, flood: 340 });
    often(LINES, 4, Passed { fast: 9_750, slow: 7_800, flood: 340 });
    often(HASH, 16, Passed { fast: 9_450, slow: 4_000, flood: 1_200 });
}

/// Packets of a step count once, so a flood that does not wait for it gains nothing.
#[test]
fn an_address_sent_16_times_at_once_counts_as_once() {
    let at_once = Spoofed { times: 16, ..Spoofed::ONCE };
    let passed = newcomers(HASH, ENTRIES, 100_000, &[at_once]);
    held(passed, Passed { fast: 9_940, slow: 8_900, flood: 160 });
}

/// As many addresses as a /16 has come back all the time. With the room of the default they get
/// entries, and so do newcomers.
#[test]
fn newcomers_get_in_beside_a_flood_from_one_16() {
    let net = Spoofed { net: [10, 9, 0, 0], hosts: [0, 0, 255, 255], ..Spoofed::ONCE };
    let passed = newcomers(HASH, 262_144, 1_000_000, &[net]);
    held(passed, Passed { fast: 9_900, slow: 8_900, flood: 10_000 });
}

/// Neighbours of the newcomers flood, amid a flood of others.
#[test]
fn newcomers_get_in_beside_a_flood_from_their_24() {
    let net = Spoofed { net: [172, 20, 7, 0], hosts: [0, 0, 0, 127], ..Spoofed::ONCE };
    let address = |rate, host| [172, 20, 7, 128 + host + if rate == 1 { NEWCOMERS } else { 0 }];
    let passed = newcomers_at(HASH, ENTRIES, 100_000, &[Spoofed::ONCE, net], address);
    held(passed, Passed { fast: 9_900, slow: 8_900, flood: 6_000 });
}

/// Neighbours that come once each use up what their /24 shares: who comes back gets an entry that
/// owes as much, and is served as soon as that is paid back, however many they are.
#[test]
fn neighbours_do_not_keep_a_newcomer_out() {
    let rules = "descriptors: [{key: remote_address, rate_limit: {unit: second, \
                 requests_per_unit: 10, burst: 5}}]";
    for store in SOURCE_STORES {
        let mut scene = Scene::new(store, 1024, 1, rules);
        scene.flood(20_000, 20, &mut []);
        scene.silence(1);
        // The demand stays, with nothing of the flood in what is shared.
        let (_, before) = scene.program.entries(EntryKind::V4).unwrap();
        for round in 0..20 {
            for host in 2..250 {
                scene.send([10, 0, 0, host]);
            }
            assert_eq!(scene.send([10, 0, 0, 1]), Verdict::Drop, "{store:?} round {round}");
            if scene.is_tracked([10, 0, 0, 1]) {
                break;
            }
            scene.wait(NANOS / 50);
        }
        assert!(scene.is_tracked([10, 0, 0, 1]), "{store:?}");
        let (_, after) = scene.program.entries(EntryKind::V4).unwrap();
        assert!(after.first_seen > before.first_seen, "{after:?}: pressure");
        scene.wait(NANOS / 10);
        assert_eq!(scene.send([10, 0, 0, 1]), Verdict::Pass, "{store:?}");
    }
}
