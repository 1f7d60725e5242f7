//! Packets that wait: when they depart, against a bucket in exact fractions, and against the bound
//! of rate and burst in every window.

#![expect(clippy::unwrap_used, reason = "a failed conversion is a failed test")]

use limiter_common::header::Direction;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_decision::packet::Segments;
use limiter_model::{Framing, Model, Packet};
use limiter_rules::place::budget_tag;
use limiter_rules::{Environment, RuleFile};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

const START: u64 = 1_000_000_000_000;
const SECOND: u128 = 1_000_000_000;

/// Nanoseconds that a departure may be later than an exact one: each charge is rounded up to a tick
/// of 1/32 ns, and so is the time of its departure, to a nanosecond.
const ROUNDING: u128 = 100;

/// Nanoseconds that a burst of bytes lasts longer, for the charges that are rounded up: a tick for
/// each of its frames, and less than a byte.
const SLACK: u128 = 25;

/// A rule that lets packets wait.
#[derive(Clone, Copy, Debug)]
struct Rule {
    bytes: bool,
    /// Units a second.
    rate: u64,
    /// Units of a token bucket; a backlog in milliseconds of a leaky one.
    burst: u64,
    leaky: bool,
    /// Milliseconds.
    longest: u64,
    /// True of packets that come in.
    incoming: bool,
}

impl Rule {
    fn yaml(self) -> String {
        let Self { bytes, rate, burst, leaky, longest, incoming } = self;
        let direction = if incoming { "in" } else { "out" };
        let count = if bytes { "bytes" } else { "packets" };
        let rest = if leaky {
            format!("algorithm: leaky_bucket, backlog: {burst}ms")
        } else {
            format!("burst: {burst}")
        };
        format!(
            "descriptors:\n  - key: remote_address\n    direction: {direction}\n    rate_limit: \
             {{unit: second, requests_per_unit: {rate}, count: {count}, {rest}}}\n    action: \
             {{delay: {{longest: {longest}ms}}}}\n"
        )
    }

    /// Nanoseconds that a packet may be early.
    fn slack(self) -> u128 {
        if self.bytes && !self.leaky { SLACK } else { 0 }
    }

    /// Nanoseconds times the rate that may be owed.
    fn tolerance(self) -> u128 {
        if self.leaky {
            u128::from(self.burst) * 1_000_000 * u128::from(self.rate)
        } else {
            cost(self.burst)
        }
    }
}

/// Nanoseconds times the rate that `units` take: exact.
fn cost(units: u64) -> u128 {
    u128::from(units) * SECOND
}

fn rule() -> impl Strategy<Value = Rule> {
    let packets = (1u64..3_000, 1u64..50).prop_map(|(rate, burst)| (false, rate, burst));
    let bytes = (10_000u64..20_000_000, 1_522u64..40_000).prop_map(|(r, b)| (true, r, b));
    (prop_oneof![packets, bytes], prop::bool::ANY, 1u64..=2_000, prop::bool::ANY).prop_map(
        |((bytes, rate, burst), leaky, longest, incoming)| {
            let burst = if leaky { burst % 500 + 1 } else { burst };
            Rule { bytes, rate, burst, leaky, longest, incoming }
        },
    )
}

/// A frame for one host: a UDP datagram, or a super-frame of TCP.
fn frame(payload: usize, tcp: bool) -> Vec<u8> {
    let mut frame = vec![0x02; 12];
    frame.extend([0x08, 0x00]);
    let head: usize = if tcp { 20 } else { 8 };
    let length = u16::try_from(20 + head + payload).unwrap().to_be_bytes();
    frame.extend([0x45, 0, length[0], length[1], 0, 0, 0, 0, 64]);
    frame.extend([if tcp { 6 } else { 17 }, 0, 0, 192, 0, 2, 1, 198, 51, 100, 7]);
    frame.extend([0, 9, 0, 9]);
    if tcp {
        frame.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    } else {
        frame.extend([0, 0, 0, 0]);
    }
    frame.resize(frame.len() + payload, 0);
    frame
}

/// What came of a packet: its units, and when it departs; none of one that is dropped.
type Sent = (u64, Option<u64>);

fn send(model: &mut Model, now: u64, payload: usize, segments: u32, rule: Rule) -> Sent {
    let frame = frame(payload, segments > 1);
    let size = u32::try_from(payload).unwrap().div_ceil(segments.max(1)).max(1);
    let count = u32::try_from(payload).unwrap().div_ceil(size).max(1);
    let segments = (count > 1).then_some(Segments { count, size });
    let direction = if rule.incoming { Direction::In } else { Direction::Out };
    let packet = Packet::at_tc(Framing::Ethernet, &frame, direction, segments, 1);
    let outcome = model.judge_packet(&packet, Ticks::from_nanos(now));
    // Each segment has the headers of the first.
    let bytes = frame.len() as u64 + u64::from(count - 1) * 54;
    let units = if rule.bytes { bytes } else { u64::from(count) };
    let departs = model.departure().map(Ticks::as_nanos_rounded_up);
    match outcome.reason {
        Reason::OverLimit => assert_eq!(departs, None),
        Reason::Conforming => assert_eq!(departs, Some(now)),
        other => assert!(other == Reason::Delayed && departs.unwrap() > now, "{other:?}"),
    }
    (units, departs)
}

fn model(rule: Rule) -> Model {
    let mut model = Model::new();
    commit(&mut model, rule, START);
    model
}

fn commit(model: &mut Model, rule: Rule, now: u64) {
    let set = RuleFile::parse("delay.yaml", rule.yaml().as_bytes(), 1522).unwrap().rules;
    let generation = model.generation() + 1;
    let machine = Environment { in_at_tc: Some(true), ..Environment::of_frame(1522) };
    let plan = model.installed().plan(&set, generation, 1024, &machine).unwrap();
    model.commit(plan, Ticks::from_nanos(now));
}

/// Packets under way keep their departures, and the new limit begins behind them: no change grants
/// what is used up, whichever way it goes.
#[test]
fn a_change_begins_behind_what_waits() {
    let before =
        Rule { bytes: false, rate: 100, burst: 10, leaky: false, longest: 1_000, incoming: false };
    for (after, first) in [
        // 40 packets wait for 400 ms; then one each 20 ms.
        (Rule { rate: 50, ..before }, 420_000_000),
        (Rule { rate: 1_000, ..before }, 401_000_000),
        // The same word: only who may wait changes.
        (Rule { longest: 2_000, ..before }, 410_000_000),
        (Rule { burst: 5, ..before }, 410_000_000),
        // Ten more at once: they overtake what waits, and all together keep the larger burst.
        (Rule { burst: 20, ..before }, 310_000_000),
    ] {
        let mut model = model(before);
        let departs: Vec<_> =
            (0..50).map(|_| send(&mut model, START, 100, 1, before).1.unwrap()).collect();
        assert_eq!(departs.last(), Some(&(START + 400_000_000)));
        commit(&mut model, after, START + 1_000_000);
        let (_, next) = send(&mut model, START + 2_000_000, 100, 1, after);
        let next = next.unwrap() - START;
        assert!(next.abs_diff(first) < 100_000, "{next} and not {first}: {after:?}");
    }
    // A shorter wait drops until what waits has gone.
    let mut model = model(before);
    for _ in 0..50 {
        send(&mut model, START, 100, 1, before);
    }
    let shorter = Rule { longest: 100, ..before };
    commit(&mut model, shorter, START + 1_000_000);
    assert_eq!(send(&mut model, START + 2_000_000, 100, 1, shorter).1, None);
    let (_, next) = send(&mut model, START + 350_000_000, 100, 1, shorter);
    assert_eq!(next.map(|next| next - START), Some(410_000_000));
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 400,
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    /// A packet departs when a bucket in exact fractions says so, and is dropped if that is more
    /// than the longest wait ahead; a super-frame counts as its packets.
    #[test]
    fn packets_depart_when_an_exact_bucket_lets_them(
        rule in rule(),
        packets in prop::collection::vec(
            (prop_oneof![3 => Just(0u64), 2 => 0u64..2_000_000, 1 => 0u64..900_000_000],
             0usize..1_460, prop_oneof![4 => Just(1u32), 1 => 2u32..40]),
            1..300,
        ),
    ) {
        let mut model = model(rule);
        let (mut now, rate) = (START, u128::from(rule.rate));
        // Both in nanoseconds times the rate: exact.
        let (mut tat, tolerance) = (0u128, rule.tolerance());
        let mut last = 0;
        for (gap, payload, segments) in packets {
            now += gap;
            let payload = if segments > 1 { payload * segments as usize / 2 } else { payload };
            let payload = payload.min(60_000);
            let (units, departs) = send(&mut model, now, payload, segments, rule);
            let arrived = u128::from(now) * rate;
            let start = tat.max(arrived);
            let charge = cost(units);
            let room = if rule.leaky { tat } else { start + charge };
            // When the drop limit would let it pass, at the earliest.
            let exact = room.saturating_sub(tolerance).min(start).max(arrived);
            let longest = arrived + u128::from(rule.longest) * 1_000_000 * rate;
            if let Some(departs) = departs {
                let departs = u128::from(departs);
                prop_assert!((departs + rule.slack()) * rate >= exact, "early");
                prop_assert!(departs <= exact.div_ceil(rate) + ROUNDING);
                prop_assert!(departs * rate <= longest + rate, "waits too long");
                prop_assert!(departs >= last, "overtaken");
                last = departs;
                // The ticks of the program are rounded up, so its bucket owes a little more.
                tat = start + charge;
            } else {
                // Less than 65.6 µs of the longest wait are rounded away, and a super-frame has to
                // fit whole.
                let whole = if segments > 1 { charge } else { 0 };
                prop_assert!(exact + whole + (65_600 + ROUNDING) * rate >= longest);
            }
        }
    }

    /// At its departures, a stream keeps to burst + rate * t in every window.
    #[test]
    fn departures_keep_the_bound_of_rate_and_burst(
        rule in rule(),
        packets in prop::collection::vec((0u64..3_000_000, 0usize..1_460), 1..200),
    ) {
        let mut model = model(rule);
        let (mut now, rate) = (START, u128::from(rule.rate));
        let mut departed: Vec<(u128, u64)> = Vec::new();
        for (gap, payload) in packets {
            now += gap;
            if let (units, Some(departs)) = send(&mut model, now, payload, 1, rule) {
                departed.push((u128::from(departs), units));
            }
        }
        for first in 0..departed.len() {
            let mut sum = 0;
            for &(departs, units) in &departed[first..] {
                // A leaky bucket takes the last packet whole.
                let before = sum;
                sum += cost(units);
                let counted = if rule.leaky { before } else { sum };
                let window = (departs - departed[first].0) * rate;
                prop_assert!(counted <= window + rule.tolerance() + (1 + rule.slack()) * rate);
            }
        }
    }
}

/// What is over a limit and waits in its class counts as delayed, under the rule and the budget,
/// and gets the budget's congestion mark; what passes there at once counts as of the class. In the
/// table of sources as in others.
#[test]
fn what_waits_in_a_class_counts_as_delayed() {
    for (direction, outgoing) in [("in", false), ("out", true)] {
        let text = format!(
            "descriptors:\n  - key: remote_address\n    direction: {direction}\n    rate_limit: \
             {{rate: 10/s, burst: 1}}\n    action: {{class: slow}}\nbudgets:\n  - name: slow\n    \
             rate_limit: {{rate: 10/s, burst: 1}}\n    action: {{delay: {{longest: 250ms, ecn: \
             true}}}}\n"
        );
        let set = RuleFile::parse("class.yaml", text.as_bytes(), 1522).unwrap().rules;
        let machine = Environment { in_at_tc: Some(true), ..Environment::of_frame(1522) };
        let mut model = Model::new();
        let plan = model.installed().plan(&set, 1, 1024, &machine).unwrap();
        let (_, budget) = plan.installed.tables.budget(budget_tag("slow")).unwrap();
        let budget = budget.rule;
        model.commit(plan, Ticks::from_nanos(START));
        let way = if outgoing { Direction::Out } else { Direction::In };
        let mut frame = frame(100, false);
        // ECT(0): its sender understands congestion marks.
        frame[15] = 2;
        let mut outcomes = Vec::new();
        let mut rule = 0;
        for _ in 0..5 {
            let packet = Packet::at_tc(Framing::Ethernet, &frame, way, None, 1);
            let outcome = model.judge_packet(&packet, Ticks::from_nanos(START));
            let waits = model.waited(Ticks::from_nanos(START)).as_nanos() / 1_000_000;
            outcomes.push((outcome.reason, waits, model.frame()[15]));
            rule = if outcome.reason == Reason::OverLimit { outcome.rule } else { rule };
        }
        let expected = [
            (Reason::Conforming, 0, 2),
            (Reason::Class, 0, 2),
            (Reason::Delayed, 100, 2),
            (Reason::Delayed, 200, 3),
            (Reason::OverLimit, 0, 2),
        ];
        assert_eq!(outcomes, expected, "{direction}");
        let counted = |number| {
            let counters = model.rule_counters(number);
            [counters.passed, counters.marked, counters.dropped].map(|tally| tally.packets)
        };
        // What is over a limit and passes is among what passes.
        assert_eq!(counted(rule), [4, 3, 1], "{direction}");
        assert_eq!(counted(budget), [3, 2, 1], "{direction}");
        let reasons = model.reasons();
        let of = |reason: Reason| reasons[reason as usize].packets;
        let counts =
            [Reason::Conforming, Reason::Class, Reason::Delayed, Reason::OverLimit].map(of);
        assert_eq!(counts, [1, 1, 2, 1], "{direction}");
    }
}
