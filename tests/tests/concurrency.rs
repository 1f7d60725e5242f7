//! Threads pinned to both CPUs on one key: exactly the allowance, neither a packet more nor less.

// Also on other kernels: 600 s each.

#![expect(clippy::unwrap_used, reason = "a test fails where its machinery does")]

use std::thread;

use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::Count;
use limiter_datapath::{Observed as _, SourceTable, Sweep};
use limiter_rules::model::Quota;
use limiter_rules::{Path, Period, Rule, RuleSet, Selector, Unit};
use limiter_tests::cpu;
use limiter_tests::hammer::{self, rounds};
use limiter_tests::packet::Frame;
use limiter_tests::program::{Program, SOURCE_STORES};
use limiter_tests::root::require_root;

const SOURCE: [u8; 4] = [192, 0, 2, 1];
const START: u64 = 1_000_000_000_000;

fn every(requests_per_unit: u64, burst: u64) -> RuleSet {
    let rate =
        Quota::new(Count::Packets, requests_per_unit, Period::one(Unit::Second)).with_burst(burst);
    RuleSet::of([Rule::new(Path::of_source(&Selector::Every), rate)])
}

fn frame() -> Vec<u8> {
    Frame::ipv4(SOURCE, [192, 0, 2, 254]).payload(&[0; 18]).build()
}

/// Rounds of a race, over each store of sources.
fn each_source_store(rounds: u32) -> impl Iterator<Item = (SourceTable, u32)> {
    SOURCE_STORES.into_iter().flat_map(move |source_store| {
        (0..rounds.div_ceil(2)).map(move |round| (source_store, round))
    })
}

/// Every CPU of this machine hammers the source until `work` has returned.
fn hammer<T>(program: &Program, work: impl FnOnce() -> T) -> T {
    hammer::hammer(program, &frame(), 5_000, work).unwrap()
}

fn packets(program: &Program, reason: Reason) -> u64 {
    hammer::packets(program, reason).unwrap()
}

fn drain(program: &Program) {
    hammer::drain(program, 30_000).unwrap();
}

/// A bucket of a million and no time passing: a million pass.
#[test]
fn the_burst_is_exact_on_every_cpu() {
    require_root();
    for (source_store, round) in each_source_store(rounds(10)) {
        let mut program = Program::load_in(source_store, 1024, 16).unwrap().for_floods().unwrap();
        program.apply(&every(1000, 1_000_000)).unwrap();
        program.set_time(Ticks::from_nanos(START)).unwrap();
        hammer(&program, || drain(&program));
        assert_eq!(
            packets(&program, Reason::Conforming),
            1_000_000,
            "{source_store:?}, round {round}"
        );
        let bucket = program.bucket(Source::V4(SOURCE)).unwrap().unwrap();
        assert_eq!(bucket.passed, 1_000_000, "{source_store:?}, round {round}");
        // Also what the CPUs hold of them, however the bucket is read.
        let (mut sweep, mut all) = (Sweep::default(), Vec::new());
        while !sweep.is_done() {
            all.extend(program.kernel().sources(&mut sweep, 1024).unwrap());
        }
        assert_eq!(all, [(Source::V4(SOURCE), bucket)], "{source_store:?}, round {round}");
        assert_eq!(
            bucket.dropped,
            packets(&program, Reason::OverLimit) + packets(&program, Reason::Contended)
        );
    }
}

/// Time passes while every CPU sends: burst + rate * t, to the packet.
#[test]
fn burst_and_rate_are_exact_on_every_cpu() {
    const BURST: u64 = 2_000;
    const STEPS: u64 = 100;
    require_root();
    for (source_store, round) in each_source_store(rounds(10)) {
        let mut program = Program::load_in(source_store, 1024, 16).unwrap().for_floods().unwrap();
        // A packet a microsecond.
        program.apply(&every(1_000_000, BURST)).unwrap();
        program.set_time(Ticks::from_nanos(START)).unwrap();
        let elapsed = hammer(&program, || {
            let mut elapsed = 0;
            for step in 0..STEPS {
                drain(&program);
                // Uneven, and never longer than the burst lasts.
                elapsed += 1_000 + step * 10_007 % 1_999_000;
                program.set_time(Ticks::from_nanos(START + elapsed)).unwrap();
            }
            drain(&program);
            elapsed
        });
        let expected = BURST + elapsed / 1_000;
        assert_eq!(
            packets(&program, Reason::Conforming),
            expected,
            "{source_store:?}, round {round}"
        );
    }
}

const BURST: u64 = 500_000;
const CHANGES: u64 = 200;

/// How many packets of a burst of [`BURST`] pass while the rate changes [`CHANGES`] times, with
/// room for `max_rules` rules.
fn passed_under_changes(source_store: SourceTable, max_rules: u32) -> u64 {
    let program = Program::load_in(source_store, 1024, max_rules).unwrap();
    let mut program = program.for_floods().unwrap();
    program.apply(&every(1000, BURST)).unwrap();
    program.set_time(Ticks::from_nanos(START)).unwrap();
    let mut changer = program.changer().unwrap();
    hammer(&program, || {
        for change in 0..CHANGES {
            changer.apply(&every(1000 + change % 7 * 1000, BURST)).unwrap();
        }
        drain(&program);
    });
    assert_eq!(packets(&program, Reason::Untracked), 0);
    packets(&program, Reason::Conforming)
}

/// Rules change under fire. A change never refills: no more than the burst passes, and rounding
/// costs at most a packet a change.
#[test]
fn rule_changes_under_fire_are_exact() {
    require_root();
    for source_store in SOURCE_STORES {
        let passed = passed_under_changes(source_store, 1024);
        assert!(passed <= BURST, "{source_store:?}: {passed}");
        assert!(passed >= BURST - CHANGES, "{source_store:?}: {passed}");
    }
}

/// Changes of rules with so few slots that they mean other limits before every bucket has followed:
/// credit that is not known is not granted.
#[test]
fn reused_slots_grant_nothing() {
    require_root();
    for source_store in SOURCE_STORES {
        let passed = passed_under_changes(source_store, 3);
        assert!(passed <= BURST, "{source_store:?}: {passed}");
    }
}

/// All CPUs meet a source for the first time at once: one bucket, one burst.
#[test]
fn a_new_source_gets_one_bucket() {
    require_root();
    SOURCE_STORES.into_iter().for_each(new_sources_get_one_bucket);
}

fn new_sources_get_one_bucket(source_store: SourceTable) {
    const SOURCES: u32 = 2_000;
    let mut program = Program::load_in(source_store, 4096, 16).unwrap();
    program.apply(&every(1, 3)).unwrap();
    program.set_time(Ticks::from_nanos(START)).unwrap();
    let cpus = thread::available_parallelism().unwrap().get();
    let barrier = std::sync::Barrier::new(cpus);
    thread::scope(|scope| {
        for cpu in 0..cpus {
            let (program, barrier) = (&program, &barrier);
            scope.spawn(move || {
                cpu::pin(None, cpu).unwrap();
                for source in 0..SOURCES {
                    let address = (0xc000_0200 + source).to_be_bytes();
                    let frame = Frame::ipv4(address, [192, 0, 2, 254]).build();
                    barrier.wait();
                    for _ in 0..4 {
                        program.run(&frame, 1).unwrap();
                    }
                }
            });
        }
    });
    let (conforming, shared) =
        (packets(&program, Reason::Conforming), packets(&program, Reason::Aggregate));
    let allowed = u64::from(SOURCES) * 3;
    match source_store {
        SourceTable::Hash => assert_eq!(conforming, allowed),
        // A packet that met, for long, a CPU with the lock of the line was charged to the bucket
        // that its neighbours share, where there may be room or none: none as a rule, and some on a
        // machine that holds CPUs up.
        SourceTable::Lines => {
            assert!(conforming <= allowed && conforming + shared >= allowed / 2, "{conforming}");
        }
    }
}
