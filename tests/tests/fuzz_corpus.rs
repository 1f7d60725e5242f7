//! The frames of the fuzz corpus, and random changes of their structure, through the program in the
//! kernel and through the host: the same facts, verdicts, reasons and bytes. `LIMITER_FUZZ_SEED`
//! begins with another sequence.
//!
//! A test run takes no frame under 14 bytes (EINVAL). Those go through the host alone, and are
//! counted.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails where its machinery does")]

use std::collections::BTreeMap;

use fastrand::Rng;
use limiter_common::verdict::Reason;
use limiter_decision::packet::{self, Facts};
use limiter_fuzz_targets::corpus::{self, Entry};
use limiter_fuzz_targets::{Target, mutate, seeds};
use limiter_tests::cpu;
use limiter_tests::pair::Pair;
use limiter_tests::program::Program;
use limiter_tests::root::require_root;

/// The kernel takes no shorter frame for a test run.
const SHORTEST: usize = 14;

/// Changed frames of each test.
const ROUNDS: u64 = 20_000;

/// CPU of the test, which the facts of the program are kept by.
const CPU: usize = 0;

/// More than there are frames, so that no map is full.
const ROOM: u32 = 1 << 16;

fn seed() -> u64 {
    let text = std::env::var("LIMITER_FUZZ_SEED").unwrap_or_else(|_not_given| "1".to_owned());
    text.parse().unwrap_or_else(|error| panic!("LIMITER_FUZZ_SEED={text}: {error}"))
}

/// Every frame with the words that repeat it: the corpus, the tests' captures, and changes of them.
fn frames(mut each: impl FnMut(&[u8], &str)) {
    let mut entries: Vec<Entry> = corpus::read(Target::Packet).unwrap();
    assert!(entries.len() > 20, "only {} frames in the corpus", entries.len());
    entries.extend(seeds::of(Target::Packet).unwrap());
    let (mut ran, mut short) = (0, 0);
    let mut one = |frame: &[u8], origin: &str| {
        if frame.len() < SHORTEST {
            Target::Packet.check(frame);
            short += 1;
        } else {
            each(frame, origin);
            ran += 1;
        }
    };
    for entry in &entries {
        one(&entry.bytes, &entry.name);
    }
    let seed = seed();
    for round in 0..ROUNDS {
        let mut random = Rng::with_seed(seed.wrapping_add(round));
        let mut frame = entries[random.usize(..entries.len())].bytes.clone();
        mutate::frame(&mut frame, &mut random);
        one(&frame, &format!("LIMITER_FUZZ_SEED={seed} round {round}"));
    }
    println!("{ran} frames in the kernel; {short} under {SHORTEST} bytes on the host alone");
}

#[test]
fn the_kernel_finds_the_facts_that_the_host_finds() {
    require_root();
    cpu::pin(None, CPU).unwrap();
    let program = Program::load(256, 16).unwrap();
    frames(|frame, origin| {
        let mut facts = Facts::EMPTY;
        let host = packet::facts(&frame, &mut facts).map(|()| {
            packet::inner(&frame, &mut facts);
            facts
        });
        assert_eq!(program.facts(frame, CPU).unwrap(), host, "{origin}: {frame:02x?}");
    });
}

/// Rules that ask for everything that a frame says.
const EVERYTHING: &str = "martians: drop
replies: {unit: second, requests_per_unit: 1000, burst: 1000}
bans: {unit: second, requests_per_unit: 1, burst: 1}
descriptors:
  - {key: remote_address, rate_limit: {unit: second, requests_per_unit: 60, burst: 20}, action: \
  reject}
  - {key: tcp_flags, value: syn, descriptors: [{key: remote_address, rate_limit: {unit: second, \
  requests_per_unit: 5, burst: 5}, action: {ban: {strikes: 3, first: 1s, longest: 1s, memory: \
  10s, evidence: none}}}]}
  - {key: vlan, rate_limit: {unit: second, requests_per_unit: 10, algorithm: fixed_window}, \
  action: {mark: {ecn: true}}}
  - {key: protocol, rate_limit: {unit: second, requests_per_unit: 30, algorithm: \
  sliding_counter}, action: {mark: {dscp: cs1}}}
  - {key: destination_port, descriptors: [{key: remote_address, rate_limit: {unit: second, \
  requests_per_unit: 100, burst: 10}}]}
  - {key: fragment, value: later, descriptors: [{key: remote_address, rate_limit: {unit: second, \
  requests_per_unit: 3, burst: 3}}]}
  - {key: inner_remote_address, rate_limit: {unit: second, requests_per_unit: 2, burst: 2}}
  - {key: icmp_type, rate_limit: {unit: second, requests_per_unit: 40, burst: 20}}
  - {key: dscp, rate_limit: {unit: second, requests_per_unit: 900, burst: 60}}\n";

/// One rule, in the source table alone.
const PLAIN: &str = "descriptors:
  - {key: remote_address, rate_limit: {unit: second, requests_per_unit: 50, burst: 20}}\n";

fn agree(rules: &str, wanted: &[Reason]) {
    require_root();
    let mut pair = Pair::with_room(rules, ROOM).unwrap();
    let mut reasons: BTreeMap<Reason, u32> = BTreeMap::new();
    frames(|frame, origin| {
        pair.after(1_000_000).unwrap();
        let sent = pair.send(frame).unwrap_or_else(|error| {
            panic!("{origin}: {error:#}\n{frame:02x?}");
        });
        *reasons.entry(sent.reason).or_default() += 1;
    });
    println!("{reasons:?}");
    for reason in wanted {
        assert!(reasons.contains_key(reason), "no {reason:?} in {reasons:?}");
    }
}

#[test]
fn kernel_and_model_agree_on_the_source_table() {
    use Reason::{Conforming, DeepVlan, Malformed, NotIp, OverLimit, Truncated};
    agree(PLAIN, &[Conforming, OverLimit, DeepVlan, Malformed, NotIp, Truncated]);
}

#[test]
fn kernel_and_model_agree_on_every_table_and_action() {
    use Reason::{Banned, Conforming, DeepVlan, Malformed, Marked, NotIp, Rejected, Truncated};
    agree(
        EVERYTHING,
        &[Banned, Conforming, DeepVlan, Malformed, Marked, NotIp, Rejected, Truncated],
    );
}
