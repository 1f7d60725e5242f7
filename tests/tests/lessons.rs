//! The faults of other limiters, each as a test of this one. On the host: `equivalence` and
//! `equivalence_tables` say that the kernel does the same. Two CPUs on one key are in `concurrency`
//! and `concurrency_tables`.

#![expect(clippy::unwrap_used, reason = "a test fails where its machinery does")]

use limiter_common::time::Ticks;
use limiter_common::verdict::Verdict;
use limiter_common::window::LATE;
use limiter_model::Model;
use limiter_rules::Environment;
use limiter_tests::packet::{Frame, Transport};
use limiter_tests::program::rule_set;

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_000 * SECOND;

fn model(limit: &str) -> Model {
    let set = rule_set(&format!("descriptors: [{{key: vlan, rate_limit: {{{limit}}}}}]")).unwrap();
    let mut model = Model::new();
    let plan = model.installed().plan(&set, 1, 64, &Environment::of_frame(65_535)).unwrap();
    model.commit(plan, Ticks::ZERO);
    model
}

fn frame(length: usize) -> Vec<u8> {
    let bare = Frame::ipv4([192, 0, 2, 1], [192, 0, 2, 2]).vlan(7).build().len();
    let payload = vec![0; length.saturating_sub(bare)];
    Frame::ipv4([192, 0, 2, 1], [192, 0, 2, 2]).vlan(7).payload(&payload).build()
}

/// How many of `count` frames pass that come `per_second` from `start` on.
fn paced(model: &mut Model, frame: &[u8], start: u64, per_second: u64, count: u64) -> u64 {
    let mut passed = 0;
    for number in 0..count {
        let at = start
            + u64::try_from(u128::from(number) * u128::from(SECOND) / u128::from(per_second))
                .unwrap();
        passed +=
            u64::from(model.judge(frame, Ticks::from_nanos(at)).reason.verdict() == Verdict::Pass);
    }
    passed
}

/// Lesson 1. A burst of one takes every packet that comes early for too much, so it is ten here.
/// Elsewhere 1,001 a second against a limit of 1,000 get 500, 1,500 get 750, 2,500 get 833.
#[test]
fn lesson_1_who_is_just_over_the_limit_loses_only_the_excess() {
    let frame = frame(60);
    for offered in [1_000, 1_001, 1_100, 1_500, 2_500] {
        let mut model = model("unit: second, requests_per_unit: 1000, burst: 10");
        let passed = paced(&mut model, &frame, START, offered, offered * 10);
        assert!((9_999..=10_010).contains(&passed), "{passed} of {offered} a second");
    }
}

/// Lesson 2. Elsewhere a clock a nanosecond behind the state refills the bucket. Only a fixed
/// window has an end of it: a wall clock that is set back by more must lock nobody out.
#[test]
fn lesson_2_a_clock_that_runs_backwards_refills_nothing() {
    for algorithm in [
        ", burst: 9",
        ", algorithm: leaky_bucket, backlog: 1s",
        ", algorithm: fixed_window",
        ", algorithm: sliding_log",
        ", algorithm: sliding_counter",
        ", algorithm: sliding_slots",
    ] {
        let mut model = model(&format!("unit: second, requests_per_unit: 9{algorithm}"));
        let frame = frame(60);
        let mut verdict = || model.judge(&frame, Ticks::from_nanos(START)).reason.verdict();
        let passed = (0..100).take_while(|_| verdict() == Verdict::Pass).count();
        assert!((1..100).contains(&passed), "{passed} of a limit of 9 passed at once{algorithm}");
        let most = if algorithm.contains("fixed_window") { LATE } else { START };
        for back in [1, 1_000, SECOND / 2, SECOND, LATE, 100 * SECOND, START] {
            if back > most {
                continue;
            }
            for _ in 0..20 {
                let outcome = model.judge(&frame, Ticks::from_nanos(START - back));
                assert_eq!(outcome.reason.verdict(), Verdict::Drop, "{back} back{algorithm}");
            }
        }
    }
}

/// Lesson 4. Elsewhere 10,000 a second are 1,250, because the clock has grains and the burst is
/// small.
#[test]
fn lesson_4_a_paced_source_gets_its_whole_rate_with_any_burst() {
    let frame = frame(60);
    for limit in [
        "unit: second, requests_per_unit: 10000",
        "unit: second, requests_per_unit: 10000, burst: 1",
    ] {
        for offered in [5_000, 9_999] {
            let count = offered * 5;
            assert_eq!(paced(&mut model(limit), &frame, START, offered, count), count, "{limit}");
        }
    }
}

/// Lesson 5. Elsewhere 600,000, 750,000 and 900,000 a second are all 1,000,000, and 3,000 are
/// 3,333.
#[test]
fn lesson_5_the_delivered_rate_is_the_configured_one_within_a_hundredth() {
    let small = frame(60);
    for rate in [600_000, 750_000, 900_000, 3_000, 6_000, 60_000_000, 7, 1] {
        let mut model = model(&format!("unit: second, requests_per_unit: {rate}, burst: 10"));
        let passed = paced(&mut model, &small, START, rate * 4, 40_000);
        assert!((9_900..=10_010).contains(&passed), "{passed} of 10,000 at {rate} a second");
    }
    // 1 kbit/s to 100 Gbit/s.
    for bytes in [125, 8_000, 1_000_000, 125_000_000, 12_500_000_000u64] {
        let large = frame(1_500);
        let mut model =
            model(&format!("unit: second, requests_per_unit: {bytes}, count: bytes, burst: 65535"));
        // Twice the rate, long enough that the burst is small beside it.
        let nanos = |frames: u64| {
            u64::try_from(u128::from(frames) * 1_500 * u128::from(SECOND) / u128::from(bytes))
                .unwrap()
        };
        let mut passed = 0;
        for number in 0..40_000 {
            let at = Ticks::from_nanos(START + nanos(number) / 2);
            passed += u64::from(model.judge(&large, at).reason.verdict() == Verdict::Pass);
        }
        assert!(
            (19_800..=20_044).contains(&passed),
            "{passed} of 20,000 at {bytes} bytes a second"
        );
    }
}

/// Lesson 6. Elsewhere the product of a rate and the time since wraps after 71 minutes, or a week's
/// unit and a frame of 30,500 bytes do.
#[test]
fn lesson_6_nothing_overflows_after_a_week_of_silence_or_with_large_frames() {
    const WEEK: u64 = 604_800 * SECOND;
    let small = frame(60);
    let mut fast = model("unit: second, requests_per_unit: 1000000, burst: 100");
    for weeks in 0..100 {
        let passed = paced(&mut fast, &small, START + weeks * WEEK, SECOND, 200);
        assert_eq!(passed, 100, "after {weeks} weeks");
    }
    let large = frame(65_000);
    let mut slow = model("unit: week, requests_per_unit: 6048000000, count: bytes, burst: 130000");
    for weeks in 0..100 {
        let passed = paced(&mut slow, &large, START + weeks * WEEK, SECOND, 10);
        assert_eq!(passed, 2, "after {weeks} weeks");
    }
}

/// envoyproxy/ratelimit #435: a client has 10 a minute, of these 2 for one service and 5 for
/// another; what is left is for all others. What a service's limit drops costs the client nothing.
#[test]
fn a_client_s_limit_holds_around_those_of_its_services() {
    let set = rule_set(
        "domain: clients
descriptors:
  - key: remote_address
    value: 192.0.2.7
    rate_limit: {name: client1, unit: minute, requests_per_unit: 10}
  - key: destination_port
    value: 81
    descriptors:
      - key: remote_address
        value: 192.0.2.7
        rate_limit: {name: svc1, unit: minute, requests_per_unit: 2}
  - key: destination_port
    value: 82
    descriptors:
      - key: remote_address
        value: 192.0.2.7
        rate_limit: {name: svc2, unit: minute, requests_per_unit: 5}
",
    )
    .unwrap();
    let mut model = Model::new();
    let plan = model.installed().plan(&set, 1, 64, &Environment::of_frame(65_535)).unwrap();
    model.commit(plan, Ticks::ZERO);
    let mut passed = |source: [u8; 4], port: u16, count: u32| {
        let syn = Transport::Tcp { source: 40_000, destination: port, flags: 2 };
        let frame = Frame::ipv4(source, [192, 0, 2, 254]).transport(syn).build();
        let now = Ticks::from_nanos(START);
        (0..count).filter(|_| model.judge(&frame, now).reason.verdict() == Verdict::Pass).count()
    };
    let client = [192, 0, 2, 7];
    assert_eq!(passed(client, 81, 8), 2);
    assert_eq!(passed(client, 82, 8), 5);
    assert_eq!(passed(client, 84, 10), 3, "what is left of ten");
    assert_eq!(passed(client, 81, 1) + passed(client, 82, 1), 0);
    // Another client has none of these limits.
    assert_eq!(passed([192, 0, 2, 8], 81, 20), 20);
}
