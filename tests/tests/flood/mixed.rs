//! Kernel and model agree when tables are full: who leaves, who gets room, who shares.

use limiter_common::time::Ticks;
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::{EntryKind, EntryTable};
use limiter_datapath::SourceTable;
use limiter_model::Model;
use limiter_tests::cpu;
use limiter_tests::packet::{Frame, Transport};
use limiter_tests::program::{Program, SEED, rule_set};
use limiter_tests::root::require_root;

const ENTRIES: u32 = 64;

/// Every policy, short and long limits, in the source table and in others.
const RULES: [&str; 4] = [
    "descriptors:
  - {key: remote_address, rate_limit: {unit: second, requests_per_unit: 5}}
  - {key: remote_address, value: 10.1.0.0/16, on_full: pass, rate_limit: {unit: minute, \
  requests_per_unit: 9}}
  - {key: remote_address, value: 10.2.0.0/16, on_full: drop, rate_limit: {unit: hour, \
  requests_per_unit: 3}}
",
    "descriptors:
  - {key: remote_address, descriptors: [{key: destination_port, rate_limit: {unit: minute, \
  requests_per_unit: 3}}]}
  - {key: remote_address, rate_limit: {unit: second, requests_per_unit: 9}}
  - {key: destination_address, on_full: drop, rate_limits: [{unit: minute, requests_per_unit: \
  90}, {unit: minute, requests_per_unit: 99, algorithm: sliding_counter}]}
",
    "descriptors:
  - {key: remote_address, descriptors: [{key: destination_port, on_full: pass, rate_limit: {unit: \
  hour, requests_per_unit: 5, algorithm: sliding_log}}]}
  - {key: dscp, rate_limit: {unit: second, requests_per_unit: 900}}
  - {key: remote_address, rate_limit: {unit: day, requests_per_unit: 4}}
",
    "descriptors:
  - {key: remote_address, descriptors: [{key: destination_port, on_full: drop, rate_limit: {unit: \
  minute, requests_per_unit: 2}}]}
",
];

/// Two sequences for each store; twice as many where `LIMITER_STEPS` asks for more of everything,
/// as the nightly run does.
#[test]
fn kernel_and_model_agree_when_tables_are_full() {
    require_root();
    let last = if std::env::var_os("LIMITER_STEPS").is_some() { 5 } else { 3 };
    for seed in 2..=last {
        kernel_and_model_agree(SourceTable::Hash, seed);
        kernel_and_model_agree(SourceTable::Lines, seed);
    }
}

/// An entry that a packet finds in one table stays while room is made for it in another: otherwise
/// its charge would go to the key that got the element. Over IPv6, where no key is compact.
#[test]
fn a_packet_does_not_push_out_its_own_bucket() {
    require_root();
    let mut program = Program::load(2, 64).unwrap();
    let rules = rule_set(
        "descriptors:
  - {key: destination_address, rate_limit: {unit: second, requests_per_unit: 1}}
  - {key: remote_address, descriptors: [{key: destination_port, on_full: pass, rate_limits: [{unit: \
  week, requests_per_unit: 1}, {unit: week, requests_per_unit: 2}]}]}
",
    )
    .unwrap();
    program.apply(&rules).unwrap();
    let (entry_table, _) = program.entries(EntryKind::Keyed).unwrap();
    program
        .set_entry_table(EntryKind::Keyed, EntryTable { entries: 2, cost: 1, ..entry_table })
        .unwrap();
    for port in 1..=100 {
        // The bucket of the destination has drained, and for long; that of the first port owes.
        program.set_time(Ticks::from_nanos(60_000_000_000 * u64::from(port))).unwrap();
        let frame = Frame::ipv6(mapped([10, 0, 0, 1]), mapped([198, 51, 100, 1]))
            .transport(Transport::Udp { source: 5, destination: port })
            .build();
        assert_eq!(program.run(&frame, 1).unwrap(), Verdict::Pass, "port {port}");
        let (_, keys) = program.entries(EntryKind::Keyed).unwrap();
        assert_eq!((keys.made, keys.full), (2, u64::from(port) - 1), "{keys:?}");
    }
}

/// An IPv6 address in a /64 of its own for each IPv4 address.
fn mapped([a, b, c, d]: [u8; 4]) -> [u8; 16] {
    [0x20, 1, 0xd, 0xb8, a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 1]
}

fn kernel_and_model_agree(source_store: SourceTable, seed: u64) {
    // New entries have a budget on each CPU.
    cpu::pin(None, 0).unwrap();
    let mut program = Program::load_in(source_store, ENTRIES, 64).unwrap();
    let mut model = match source_store {
        SourceTable::Hash => Model::with_room(ENTRIES, ENTRIES, SEED),
        SourceTable::Lines => Model::with_lines(ENTRIES, ENTRIES, SEED),
    };
    let mut random = fastrand::Rng::with_seed(seed);
    let mut now = 1_000_000_000_000u64;
    for step in 0..60_000u32 {
        if step % 5000 == 0 {
            let rules = rule_set(RULES[random.usize(..RULES.len())]).unwrap();
            program.set_time(Ticks::from_nanos(now)).unwrap();
            model.commit(program.apply(&rules).unwrap(), Ticks::from_nanos(now));
        }
        // Bursts of new sources, and pauses in which budgets and buckets come back.
        now += match random.u32(..1000) {
            0 => random.u64(..30_000_000_000),
            1..=20 => random.u64(..300_000_000),
            _ => random.u64(..2_000_000),
        };
        // A few that come again and again, many that do not.
        let host = if random.bool() { random.u8(..8) } else { random.u8(..) };
        let source = [10, random.u8(..3), random.u8(..2), host];
        let destination = [198, 51, 100, random.u8(..100)];
        let frame = if random.u8(..4) == 0 {
            Frame::ipv6(mapped(source), mapped(destination))
        } else {
            Frame::ipv4(source, destination)
        };
        let frame =
            frame.transport(Transport::Udp { source: 5, destination: random.u16(..20) }).build();
        let ticks = Ticks::from_nanos(now);
        program.set_time(ticks).unwrap();
        let verdict = program.run(&frame, 1).unwrap();
        let expected = model.judge(&frame, ticks).reason;
        assert_eq!(
            verdict,
            expected.verdict(),
            "{source_store:?} step {step}: {}",
            expected.name()
        );
    }
    assert_eq!(program.reasons().unwrap(), model.reasons());
    for kind in EntryKind::ALL {
        let ((entry_table, counts), (model_entry_table, model_counts)) =
            (program.entries(kind).unwrap(), model.entries(kind));
        assert_eq!(
            (entry_table, counts),
            (model_entry_table, model_counts),
            "{source_store:?} {kind:?}"
        );
    }
    for kind in EntryKind::ALL {
        let (_, counts) = model.entries(kind);
        assert!(
            counts.evicted > 100 && counts.full > 100,
            "{source_store:?} {kind:?} {counts:?}: it was full"
        );
        assert!(
            counts.first_seen > 100 && counts.over_budget > 100,
            "{source_store:?} {kind:?} {counts:?}: there was pressure"
        );
    }
    let reasons = [Reason::Aggregate, Reason::OverAggregate, Reason::TableFull, Reason::Untracked];
    for reason in reasons {
        assert!(model.reasons()[reason.index() as usize].packets > 100, "{}", reason.name());
    }
}
