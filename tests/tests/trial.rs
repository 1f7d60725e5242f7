//! A rule set on trial goes back by itself, in the kernel, with nobody there.

// Also on other kernels: 120 s each.

#![expect(clippy::unwrap_used, reason = "a test fails where its machinery does")]

use limiter_common::time::Ticks;
use limiter_common::verdict::{Reason, Verdict};
use limiter_datapath::TrialOutcome;
use limiter_tests::packet::{Frame, Transport};
use limiter_tests::program::{Program, rule_set};
use limiter_tests::root::require_root;

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_000 * SECOND;
const END: u64 = START + 60 * SECOND;

fn limits(requests: u32) -> String {
    format!(
        "descriptors: [{{key: remote_address, rate_limit: {{unit: week, requests_per_unit: \
         {requests}}}}}]\n"
    )
}

fn source(last: u8) -> Vec<u8> {
    let transport = Transport::Udp { source: 40_000, destination: 53 };
    Frame::ipv4([192, 0, 2, last], [198, 51, 100, 1]).transport(transport).payload(&[0; 60]).build()
}

fn at(program: &Program, nanos: u64) {
    program.set_time(Ticks::from_nanos(nanos)).unwrap();
}

fn passed(program: &Program, frame: &[u8], count: usize) -> usize {
    (0..count).filter(|_| program.run(frame, 1).unwrap() == Verdict::Pass).count()
}

/// Under `before` for good, and `tried` on trial until [`END`].
fn on_trial(before: &str, tried: &str) -> Program {
    require_root();
    let mut program = Program::load(256, 64).unwrap();
    program.apply_file(before).unwrap();
    at(&program, START);
    program.apply_on_trial(&rule_set(tried).unwrap(), Ticks::from_nanos(END)).unwrap();
    program
}

#[test]
fn without_a_word_the_rules_before_are_in_force_again() {
    let program = on_trial(&limits(5), &limits(50));
    at(&program, END - 1);
    assert_eq!(passed(&program, &source(1), 100), 50, "on trial");
    at(&program, END);
    // Nobody but the clock did anything.
    assert_eq!(passed(&program, &source(2), 100), 5, "a new source");
    // Nobody gets a second burst from going back.
    assert_eq!(passed(&program, &source(1), 100), 0, "one that had used all of it");
}

/// The lock-out that this is for: the new rules drop everything.
#[test]
fn who_is_locked_out_is_let_in_again() {
    let nobody = "martians: drop\ndescriptors:\n  - {key: generic_key, value: all, rate_limit: \
        {unit: week, \
         requests_per_unit: 1}}\n  - {key: destination_port, descriptors: [{key: remote_address, \
         rate_limit: {unit: week, requests_per_unit: 1}}]}\n";
    let program = on_trial("descriptors: []\n", nobody);
    assert_eq!(passed(&program, &source(1), 10), 1);
    let martian = Frame::ipv4([127, 0, 0, 1], [198, 51, 100, 1]).build();
    assert_eq!(program.judge(&martian).unwrap(), Reason::Martian);
    at(&program, END);
    assert_eq!(passed(&program, &source(1), 10), 10);
    assert_eq!(program.judge(&source(1)).unwrap(), Reason::NoRule);
    assert_eq!(program.judge(&martian).unwrap(), Reason::NoRule);
}

#[test]
fn what_is_confirmed_stays() {
    let mut program = on_trial(&limits(5), &limits(50));
    assert_eq!(passed(&program, &source(1), 20), 20);
    assert_eq!(program.confirm(Ticks::from_nanos(END - 1)).unwrap(), TrialOutcome::Confirmed);
    at(&program, END + SECOND);
    assert_eq!(passed(&program, &source(1), 100), 30);
    assert!(
        program.confirm(Ticks::from_nanos(END)).is_err(),
        "there is nothing to confirm any more"
    );
    program.apply_file(&limits(7)).unwrap();
    assert_eq!(passed(&program, &source(2), 100), 7);
}

#[test]
fn a_word_that_comes_too_late_confirms_nothing() {
    let mut program = on_trial(&limits(5), &limits(50));
    assert_eq!(program.confirm(Ticks::from_nanos(END)).unwrap(), TrialOutcome::Reverted);
    assert_eq!(passed(&program, &source(1), 100), 5);
    program.apply_file(&limits(7)).unwrap();
    assert_eq!(passed(&program, &source(2), 100), 7);
}

#[test]
fn it_can_be_taken_back_before_its_time() {
    let mut program = on_trial(&limits(5), &limits(50));
    assert_eq!(passed(&program, &source(1), 3), 3);
    assert_eq!(program.revert().unwrap(), TrialOutcome::Reverted);
    // A trial of a rate gives no difference: three of five were used, and then the rest.
    assert_eq!(passed(&program, &source(1), 100), 5);
    assert!(program.revert().is_err());
}

/// A trial leaves quotas as they were, but for what passed meanwhile: whether its limit was larger
/// or smaller, and whether it is taken back by a word or by itself, with nobody there. Of a larger
/// one on trial, a bucket of a rate has what it had before.
#[test]
fn a_trial_that_is_taken_back_leaves_quotas_as_they_were() {
    let of_sources = ["token_bucket", "leaky_bucket", "fixed_window", "sliding_log"];
    let others = ["sliding_counter", "sliding_slots"];
    for algorithm in of_sources.into_iter().chain(others) {
        let is_rate = algorithm.ends_with("bucket");
        let backlog = |packets: u32| match algorithm {
            "leaky_bucket" => format!(", backlog: {}s", 604_800 / packets * (packets - 1)),
            _ => String::new(),
        };
        let limits = |packets: u32| {
            format!(
                "descriptors: [{{key: remote_address, rate_limit: {{unit: week, \
                 requests_per_unit: {packets}, algorithm: {algorithm}{}}}}}]\n",
                backlog(packets)
            )
        };
        let mut program = Program::load(256, 64).unwrap();
        program.apply_file(&limits(10)).unwrap();
        let tries = [(2, 0), (6, 1), (20, 3)].into_iter();
        let cases = tries.flat_map(|case| [(case, false), (case, true)]);
        // Each has sources of its own, and comes after the one before.
        for (number, ((tried, taken), by_itself)) in (0u8..).zip(cases) {
            let sources = [1, 2, 3].map(|each| source(number * 3 + each));
            let start = START + u64::from(number) * 120 * SECOND;
            let end = start + 60 * SECOND;
            at(&program, start);
            for source in &sources {
                assert_eq!(passed(&program, source, 5), 5, "{algorithm}");
            }
            let set = rule_set(&limits(tried)).unwrap();
            program.apply_on_trial(&set, Ticks::from_nanos(end)).unwrap();
            assert_eq!(passed(&program, &sources[0], taken), taken, "{algorithm}");
            let tried_left = usize::try_from(tried).unwrap();
            let left = if is_rate && tried > 10 { 5 } else { tried_left.saturating_sub(5) };
            assert_eq!(passed(&program, &sources[1], 30), left, "{algorithm}");
            if by_itself {
                at(&program, end);
            } else {
                assert_eq!(program.revert().unwrap(), TrialOutcome::Reverted);
            }
            let case = format!("{algorithm}, {tried} on trial, by itself: {by_itself}");
            assert_eq!(passed(&program, &sources[0], 30), 5 - taken, "{case}");
            assert_eq!(passed(&program, &sources[1], 30), 5usize.saturating_sub(left), "{case}");
            assert_eq!(passed(&program, &sources[2], 30), 5, "{case}");
            if by_itself {
                // Only then another one can be tried.
                assert_eq!(program.revert().unwrap(), TrialOutcome::Reverted);
            }
        }
    }
}

/// The buffers of a trial's predecessor are those that go back into force.
#[test]
fn nothing_else_is_committed_meanwhile() {
    let mut program = on_trial(&limits(5), &limits(50));
    let error = program.apply_file(&limits(7)).unwrap_err().to_string();
    assert!(error.contains("limiter confirm"), "{error}");
    at(&program, END);
    assert_eq!(passed(&program, &source(1), 100), 5);
}

/// Nobody can confirm what an ended daemon had on trial, so its successor takes it back: before its
/// time, and also when the program did so long ago.
#[test]
fn a_start_takes_back_what_was_on_trial() {
    for time in [START + 1, END + SECOND] {
        let mut program = on_trial(&limits(5), &limits(50));
        at(&program, time);
        assert_eq!(passed(&program, &source(1), 3), 3);
        program.restart().unwrap();
        assert_eq!(program.installed().rules.len(), 1);
        assert_eq!(passed(&program, &source(2), 100), 5);
        program.apply_file(&limits(7)).unwrap();
        assert_eq!(passed(&program, &source(3), 100), 7);
    }
}

/// The budgets of answers are those of the rule set in force as well.
#[test]
fn answers_go_back_with_the_rules() {
    let rules = |replies: u32| {
        format!(
            "replies: {{unit: week, requests_per_unit: {replies}, burst: \
             {replies}}}\ndescriptors: [{{key: \
             remote_address, rate_limit: {{unit: week, requests_per_unit: 1}}, action: reject}}]\n"
        )
    };
    let program = on_trial(&rules(2), &rules(6));
    let answered = |last: u8| {
        let reasons = (0..20).map(|_| program.judge(&source(last)).unwrap());
        reasons.filter(|reason| *reason == Reason::Rejected).count()
    };
    assert_eq!(answered(1), 6);
    at(&program, END);
    // Six of six were used, so two of two are.
    assert_eq!(answered(2), 0);
    let program = on_trial(&rules(2), &rules(6));
    at(&program, END);
    let reasons = (0..20).map(|_| program.judge(&source(3)).unwrap());
    assert_eq!(reasons.filter(|reason| *reason == Reason::Rejected).count(), 2);
}
