//! Sources that are known lose nothing, and the flood passes no more than its budget.

use limiter_common::time::SECOND;
use limiter_common::verdict::Reason;
use limiter_common::wire::{EntryKind, KEEP};
use limiter_datapath::SourceTable;
use limiter_tests::program::SOURCE_STORES;

use super::scene::{Known, NANOS, START, Scene, Spoofed};

const HASH: SourceTable = SourceTable::Hash;
const LINES: SourceTable = SourceTable::Lines;

/// Every source of its own; nobody known comes near it.
const RULES: &str =
    "descriptors: [{key: remote_address, rate_limit: {unit: second, requests_per_unit: 2000}}]";

/// Sources that send 1, 20 and 1000 packets a second.
fn everybody() -> Vec<Known> {
    let many = |block: u8, count: u8, period: u64| {
        (0..count).map(move |host| Known::new([10, 0, block, host], period))
    };
    many(1, 20, NANOS).chain(many(2, 5, NANOS / 20)).chain(many(3, 1, NANOS / 1000)).collect()
}

/// Twice as long as a table of this size needs to fill up, and longer than an entry is kept.
fn everyone_known_keeps_every_packet(
    source_store: SourceTable,
    entries: u32,
    cpus: usize,
    rate: u64,
) {
    let mut scene = Scene::new(source_store, entries, cpus, RULES);
    let mut known = everybody();
    // Two packets of everybody first.
    scene.flood(0, 2, &mut known);
    let before = scene.packets(Reason::Conforming) + scene.packets(Reason::Aggregate);
    let sent: u64 = known.iter().map(|source| source.sent).sum();
    assert_eq!(before, sent, "{entries} entries: everybody passes before the flood");
    let mut passed = 0;
    let mut flood = |scene: &mut Scene, seconds, budget: u64| {
        scene.flood(rate, seconds, &mut known);
        for source in &known {
            assert_eq!(
                source.passed, source.sent,
                "{entries} entries, {cpus} CPUs: {:?} every {} ns",
                source.address, source.period
            );
            assert!(scene.is_tracked(source.address), "{:?}", source.address);
        }
        let all = scene.packets(Reason::Conforming) + scene.packets(Reason::Aggregate);
        let sent_now: u64 = known.iter().map(|source| source.sent).sum();
        let new = all - sent_now - passed;
        passed += new;
        assert!(new <= budget, "{entries} entries: the flood passed {new} of {budget}");
        // A budget is no wall: what it says may pass does, but for what known sources took.
        assert!(new * 10 >= budget * 8, "{entries} entries: the flood passed {new} of {budget}");
        scene.program.entries(EntryKind::V4).unwrap()
    };
    let budget = scene.first_budget(rate, 10);
    let (entry_table, admission) = flood(&mut scene, 10, budget);
    assert!(entry_table.flood_until > START << 5, "the flood was noticed");
    assert!(admission.first_seen > 0, "{admission:?}: the flood was over its budget");
    // The table turns over only if they come back.
    scene.spoof(&[Spoofed::often(2)]);
    let budget = scene.budget(10, 2);
    let (_, admission) = flood(&mut scene, 10, budget);
    assert!(admission.over_budget > 0, "{admission:?}: the flood was over its budget");
    assert!(admission.made > u64::from(entries), "{admission:?}: the table turned over");
}

#[test]
fn known_sources_lose_nothing_with_16k_entries_on_one_cpu() {
    everyone_known_keeps_every_packet(HASH, 16_384, 1, 200_000);
}

/// Both bounds, and 80 % of them.
#[test]
fn known_sources_lose_nothing_with_16k_entries_on_two_cpus() {
    everyone_known_keeps_every_packet(HASH, 16_384, 2, 200_000);
}

#[test]
fn known_sources_lose_nothing_with_256k_entries_on_one_cpu() {
    everyone_known_keeps_every_packet(HASH, 262_144, 1, 200_000);
}

#[test]
fn known_sources_lose_nothing_with_256k_entries_on_two_cpus() {
    everyone_known_keeps_every_packet(HASH, 262_144, 2, 200_000);
}

#[test]
fn known_sources_lose_nothing_with_a_million_entries_on_one_cpu() {
    everyone_known_keeps_every_packet(HASH, 1_048_576, 1, 400_000);
}

#[test]
fn known_sources_lose_nothing_with_a_million_entries_on_two_cpus() {
    everyone_known_keeps_every_packet(HASH, 1_048_576, 2, 400_000);
}

#[test]
fn known_sources_lose_nothing_with_lines_for_16k_sources_on_two_cpus() {
    everyone_known_keeps_every_packet(LINES, 16_384, 2, 200_000);
}

/// New sources that owe for as long as two seconds fill the table with entries that may not leave.
/// A known one that has drained between its packets stays all the same.
#[test]
fn known_sources_lose_nothing_where_new_ones_owe_for_long() {
    let rules =
        "descriptors: [{key: remote_address, rate_limit: {unit: minute, requests_per_unit: 30}}]";
    let mut scene = Scene::new(HASH, 16_384, 2, rules);
    let mut known: Vec<Known> =
        (0..20).map(|host| Known::new([10, 0, 1, host], 5 * NANOS)).collect();
    scene.flood(0, 11, &mut known);
    scene.spoof(&[Spoofed::often(8)]);
    scene.flood(200_000, 40, &mut known);
    for source in &known {
        assert_eq!(source.passed, source.sent, "{:?}", source.address);
    }
    let (_, admission) = scene.program.entries(EntryKind::V4).unwrap();
    assert!(admission.full > 0, "{admission:?}: the table was full of entries that owe");
}

/// The formula: who sends a packet every 8 seconds stays, and who is silent for that and a turn of
/// the hand leaves.
#[test]
fn who_stays_tracked_is_as_published() {
    SOURCE_STORES.into_iter().for_each(who_stays_tracked);
}

fn who_stays_tracked(source_store: SourceTable) {
    let mut scene = Scene::new(source_store, 1024, 1, RULES);
    let keep = KEEP / SECOND;
    let mut known: Vec<Known> =
        (0..16).map(|host| Known::new([10, 0, 0, host], keep * NANOS - NANOS / 10)).collect();
    let silent: Vec<[u8; 4]> = (0..16).map(|host| [10, 0, 9, host]).collect();
    for _ in 0..2 {
        for address in &silent {
            scene.send(*address);
        }
    }
    // Two packets of everybody, in a table that has room.
    scene.flood(0, 2 * keep, &mut known);
    scene.spoof(&[Spoofed::often(3)]);
    scene.flood(20_000, 60, &mut known);
    for source in &known {
        assert_eq!(source.passed, source.sent);
        let bucket = limiter_common::source::Source::V4(source.address);
        let bucket = scene.program.bucket(bucket).unwrap().unwrap();
        assert_eq!(bucket.passed, source.sent, "{:?}: one entry all the time", source.address);
    }
    for address in silent {
        assert!(!scene.is_tracked(address), "{address:?} is tracked although it is silent");
    }
}

/// When the flood is over, new sources get entries again at once.
#[test]
fn the_table_is_there_again_after_the_flood() {
    SOURCE_STORES.into_iter().for_each(the_table_is_there_again);
}

fn the_table_is_there_again(source_store: SourceTable) {
    let mut scene = Scene::new(source_store, 1024, 1, RULES);
    scene.flood(20_000, 20, &mut []);
    scene.silence(2);
    scene.send([10, 0, 0, 1]);
    assert!(scene.is_tracked([10, 0, 0, 1]));
}
