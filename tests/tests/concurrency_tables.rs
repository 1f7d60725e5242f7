//! Threads pinned to all CPUs on one key of a table, for every algorithm: the allowance, whatever
//! else happens to the rules.

// Also on other kernels: 600 s each.

#![expect(clippy::unwrap_used, reason = "a test fails where its machinery does")]

use limiter_common::time::Ticks;
use limiter_common::verdict::{Reason, Verdict};
use limiter_model::Model;
use limiter_tests::hammer::{self, rounds};
use limiter_tests::packet::Frame;
use limiter_tests::program::{Program, rule_set};
use limiter_tests::root::require_root;

const SECOND: u64 = 1_000_000_000;
const START: u64 = 864_000 * SECOND;

fn frame() -> Vec<u8> {
    Frame::ipv4([192, 0, 2, 1], [192, 0, 2, 254]).vlan(7).payload(&[0; 18]).build()
}

fn cpus() -> u64 {
    hammer::cpus().unwrap().into()
}

/// Every CPU of this machine hammers the key until `work` has returned.
fn hammer<T>(program: &Program, work: impl FnOnce() -> T) -> T {
    hammer::hammer(program, &frame(), 5_000, work).unwrap()
}

fn packets(program: &Program, reason: Reason) -> u64 {
    hammer::packets(program, reason).unwrap()
}

fn drain(program: &Program) {
    hammer::drain(program, 30_000).unwrap();
}

fn program(file: &str) -> Program {
    require_root();
    let mut program = Program::load(1024, 1024).unwrap().for_floods().unwrap();
    program.apply_file(file).unwrap();
    program.set_time(Ticks::from_nanos(START)).unwrap();
    program
}

/// A rule with room for so many packets at once.
fn rule(algorithm: &str, packets: u64) -> String {
    let backlog = 86_400_000 / packets * (packets - 1);
    let algorithm = algorithm.replace("BACKLOG", &format!("{backlog}ms"));
    format!("rate_limits: [{{unit: day, requests_per_unit: {packets}{algorithm}}}]")
}

const ALGORITHMS: [&str; 8] = [
    "",
    ", algorithm: leaky_bucket, backlog: BACKLOG",
    ", algorithm: fixed_window",
    ", algorithm: sliding_counter",
    ", algorithm: sliding_slots, slots: 2",
    ", algorithm: sliding_slots, slots: 4",
    ", algorithm: sliding_slots, slots: 8, strict: true",
    ", algorithm: sliding_log",
];

#[test]
fn every_algorithm_is_exact_on_every_cpu() {
    for algorithm in ALGORITHMS {
        // 86,400 divides a day into whole milliseconds; a log has room for 31.
        let (limit, count) = if algorithm.contains("sliding_log") { (31, 10) } else { (86_400, 2) };
        for round in 0..rounds(count) {
            let program =
                program(&format!("descriptors: [{{key: vlan, {}}}]", rule(algorithm, limit)));
            hammer(&program, || drain(&program));
            assert_eq!(packets(&program, Reason::Conforming), limit, "{algorithm} {round}");
        }
    }
}

/// Time passes from one window and slot to the next while every CPU sends. Two CPUs that read the
/// clock on both sides of a border may disagree by a packet of each other CPU.
#[test]
fn borders_cost_at_most_a_packet_of_every_other_cpu() {
    const LIMIT: u64 = 5_000;
    let steps = u64::from(rounds(40));
    for algorithm in ALGORITHMS {
        let limit = if algorithm.contains("sliding_log") { 30 } else { LIMIT };
        let algorithm = algorithm.replace("BACKLOG", "400ms");
        let file = format!(
            "descriptors: [{{key: vlan, rate_limits: [{{unit: second, requests_per_unit: \
             {limit}{algorithm}}}]}}]"
        );
        let program = program(&file);
        let mut model = Model::new();
        let set = rule_set(&file).unwrap();
        let environment = limiter_rules::Environment::of_frame(1522);
        let plan = model.installed().plan(&set, 1, 1024, &environment).unwrap();
        model.commit(plan, Ticks::ZERO);
        let times: Vec<u64> = (0..steps)
            .scan(START, |at, step| {
                *at += step * 7_919_000_003 % 700_000_000;
                Some(*at)
            })
            .collect();
        let mut expected = 0;
        for time in &times {
            let now = Ticks::from_nanos(*time);
            while model.judge(&frame(), now).reason.verdict() == Verdict::Pass {
                expected += 1;
                assert!(expected <= limit * steps, "{algorithm}: the model passes without an end");
            }
        }
        program.set_time(Ticks::from_nanos(times[0])).unwrap();
        hammer(&program, || {
            for time in &times {
                program.set_time(Ticks::from_nanos(*time)).unwrap();
                drain(&program);
            }
        });
        let passed = packets(&program, Reason::Conforming);
        // Nothing to disagree about where there are no windows, or each is for itself.
        let exact =
            ["sliding_counter", "sliding_slots"].iter().all(|name| !algorithm.contains(name));
        let error = if exact { 0 } else { steps * (cpus() - 1) };
        eprintln!("{passed} of {expected}{algorithm}");
        assert!(passed.abs_diff(expected) <= error, "{passed} of {expected}{algorithm}");
    }
}

/// A packet that finds no room in a later limit gives back what earlier ones have charged: no limit
/// is passed, and what is lost is what two CPUs had in hand at the end.
#[test]
fn several_tables_and_limits_never_pass_more_than_any_of_them() {
    const LIMIT: u64 = 50_000;
    let quota = format!("unit: day, requests_per_unit: {LIMIT}");
    let limits = format!(
        "rate_limits: [{{{quota}, algorithm: fixed_window}}, {{{quota}}}, {{{quota}, algorithm: \
         sliding_counter}}]"
    );
    for round in 0..rounds(5) {
        let program = program(&format!(
            "budgets: [{{name: b, {limits}}}]
descriptors:
  - {{key: remote_address, rate_limit: {{{quota}}}}}
  - {{key: vlan, {limits}}}
  - {{key: dscp, {limits}}}
  - {{key: protocol, budget: b}}
"
        ));
        hammer(&program, || drain(&program));
        let passed = packets(&program, Reason::Conforming);
        let contended = packets(&program, Reason::Contended);
        eprintln!("round {round}: {passed} of {LIMIT}, {contended} contended");
        assert!(passed <= LIMIT, "{passed}");
        assert!(passed >= LIMIT - 4 * cpus(), "{passed}");
        // The counters say the same as the verdicts.
        let tables = &program.installed().tables;
        for slot in tables.rules.values() {
            let counters = program.rule_counters(tables.records[slot].rule).unwrap();
            assert_eq!(counters.passed.packets, passed);
        }
    }
}

/// Without anybody in the way nothing is lost, whatever was given back before.
#[test]
fn conforming_packets_pass_when_nobody_is_in_the_way() {
    let program = program(
        "descriptors:
  - {key: vlan, rate_limits: [{unit: second, requests_per_unit: 20, algorithm: sliding_log}, \
  {unit: second, requests_per_unit: 100}]}
  - {key: dscp, rate_limits: [{unit: second, requests_per_unit: 20, algorithm: sliding_slots}]}
",
    );
    hammer(&program, || drain(&program));
    // Twice the window of the slots later.
    program.set_time(Ticks::from_nanos(START + 3 * SECOND)).unwrap();
    let passed = (0..30).filter(|_| program.run(&frame(), 1).unwrap() == Verdict::Pass).count();
    assert_eq!(passed, 20);
    assert_eq!(packets(&program, Reason::Untracked), 0);
}

/// The algorithm changes under fire. A change never refills: no more than the limit passes in all,
/// and rounding costs at most a packet a change.
#[test]
fn changes_of_the_algorithm_under_fire_grant_nothing() {
    const LIMIT: u64 = 86_400;
    const CHANGES: usize = 60;
    for max_rules in [1024, 8] {
        let file = |change: usize| {
            let algorithm = ALGORITHMS[change % 7];
            let second = ALGORITHMS[change * 3 % 7];
            let (first, second) = (rule(algorithm, LIMIT), rule(second, 2 * LIMIT));
            format!(
                "budgets: [{{name: b, {second}}}]\ndescriptors: [{{key: vlan, {first}}}, {{key: \
                 dscp, budget: b}}]"
            )
        };
        require_root();
        let mut program = Program::load(1024, max_rules).unwrap().for_floods().unwrap();
        program.apply_file(&file(0)).unwrap();
        program.set_time(Ticks::from_nanos(START)).unwrap();
        let mut changer = program.changer().unwrap();
        hammer(&program, || {
            for change in 1..CHANGES {
                changer.apply(&rule_set(&file(change)).unwrap()).unwrap();
            }
            drain(&program);
        });
        let passed = packets(&program, Reason::Conforming);
        let contended = packets(&program, Reason::Contended);
        eprintln!("{passed} of {LIMIT} over {CHANGES} changes, {contended} contended");
        assert!(passed <= LIMIT, "{passed}");
        if max_rules == 1024 {
            assert!(passed >= LIMIT - 2 * CHANGES as u64, "{passed}");
        }
        // The budget is not stuck. One that nobody met for more changes than there are slots is
        // taken for used up at its next packet; two days later all of it is there again.
        for days in [3, 5] {
            program.set_time(Ticks::from_nanos(START + days * 86_400 * SECOND)).unwrap();
            program.run(&frame(), 1).unwrap();
        }
        let before = packets(&program, Reason::Conforming);
        program.run(&frame(), 1_000).unwrap();
        assert_eq!(packets(&program, Reason::Conforming), before + 1_000);
    }
}
