//! Packets that wait for a limit of their own and are charged to one that they share: what they do
//! to others, and what leaves when they depart.

#![expect(clippy::unwrap_used, reason = "a failed conversion is a failed test")]

use std::fmt::Write as _;

use limiter_common::header::Direction;
use limiter_common::time::Ticks;
use limiter_common::verdict::Verdict;
use limiter_model::{Framing, Model, Packet};
use limiter_rules::{Environment, RuleFile};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

const START: u64 = 1_000_000_000_000;
const SECOND: u128 = 1_000_000_000;

/// Nanoseconds by which ticks may be off.
const ROUNDING: u128 = 100;

/// The last byte of the address that has no limit of its own. All others have one.
const OTHER: u8 = 9;

/// A limit of packets, and milliseconds that those over it wait.
#[derive(Clone, Copy, Debug)]
struct Limit {
    rate: u64,
    burst: u64,
    longest: u64,
}

impl Limit {
    fn yaml(self) -> String {
        let Self { rate, burst, longest } = self;
        let action = match longest {
            0 => String::new(),
            _ => format!("\n    action: {{delay: {{longest: {longest}ms}}}}"),
        };
        format!("    rate_limit: {{rate: {rate}/s, burst: {burst}}}{action}\n")
    }

    /// True if some that depart at these times are no more than burst + rate * (time + `more`
    /// milliseconds), in any time.
    fn holds(self, departed: &[u64], more: u64) -> bool {
        let mut departed = departed.to_vec();
        departed.sort_unstable();
        (0..departed.len()).all(|first| {
            (1u128..).zip(&departed[first..]).all(|(count, at)| {
                let time = u128::from(at - departed[first] + more * 1_000_000) + ROUNDING;
                count * SECOND <= u128::from(self.burst) * SECOND + u128::from(self.rate) * time
            })
        })
    }
}

fn limit(waits: impl Strategy<Value = u64>) -> impl Strategy<Value = Limit> {
    (1u64..200, 1u64..20, waits).prop_map(|(rate, burst, longest)| Limit { rate, burst, longest })
}

fn model(own: Option<Limit>, shared: Limit, incoming: bool) -> Model {
    let direction = if incoming { "in" } else { "out" };
    let mut text = String::from("descriptors:\n");
    if let Some(own) = own {
        write!(
            text,
            "  - key: remote_address\n    value: 198.51.100.0/30\n    direction: {direction}\n{}",
            own.yaml()
        )
        .unwrap();
    }
    write!(
        text,
        "  - key: generic_key\n    value: all\n    direction: {direction}\n{}",
        shared.yaml()
    )
    .unwrap();
    let set = RuleFile::parse("waiting.yaml", text.as_bytes(), 1522).unwrap().rules;
    let machine = Environment { in_at_tc: Some(true), ..Environment::of_frame(1522) };
    let mut model = Model::new();
    let plan = model.installed().plan(&set, 1, 1024, &machine).unwrap();
    model.commit(plan, Ticks::from_nanos(START));
    model
}

/// When a packet of a host departs; none of one that is dropped.
fn send(model: &mut Model, now: u64, host: u8, incoming: bool) -> Option<u64> {
    let mut frame = vec![2; 60];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    frame[26..30].copy_from_slice(&[198, 51, 100, host]);
    frame[30..34].copy_from_slice(&[198, 51, 100, host]);
    let direction = if incoming { Direction::In } else { Direction::Out };
    let packet = Packet::at_tc(Framing::Ethernet, &frame, direction, None, 1);
    let outcome = model.judge_packet(&packet, Ticks::from_nanos(now));
    let departure = model.departure().map_or(now, Ticks::as_nanos_rounded_up);
    (outcome.reason.verdict() == Verdict::Pass).then_some(departure)
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 60,
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    /// Whoever shares a limit with packets that wait for another one has what they would have had
    /// if those had not waited: the shared limit is charged when a packet comes. At the departures
    /// each limit keeps its burst and rate, with the time that packets may wait for another limit
    /// on top.
    #[test]
    fn nobody_else_loses_by_a_packet_that_waits(
        own in limit(1u64..2_000), shared in limit(prop_oneof![Just(0u64), 1u64..2_000]),
        incoming: bool,
        packets in prop::collection::vec(
            (prop_oneof![3 => Just(0u64), 3 => 0u64..20_000_000, 1 => 0u64..900_000_000],
             prop_oneof![Just(1u8), Just(2), Just(OTHER)]),
            1..200,
        ),
    ) {
        let mut both = model(Some(own), shared, incoming);
        let mut alone = model(None, shared, incoming);
        let mut now = START;
        let mut departed: Vec<(u8, u64)> = Vec::new();
        for (gap, host) in packets {
            now += gap;
            let departs = send(&mut both, now, host, incoming);
            if host == OTHER {
                prop_assert_eq!(departs, send(&mut alone, now, host, incoming));
            } else if departs.is_some() {
                // It passes there, too, at its departure or before.
                prop_assert!(send(&mut alone, now, host, incoming) <= departs);
            }
            departed.extend(departs.map(|at| (host, at)));
        }
        let all: Vec<u64> = departed.iter().map(|(_, at)| *at).collect();
        prop_assert!(shared.holds(&all, own.longest));
        for host in [1, 2] {
            let of = departed.iter().filter(|(of, _)| *of == host).map(|(_, at)| *at);
            prop_assert!(own.holds(&of.collect::<Vec<_>>(), shared.longest));
        }
    }
}
