//! The short ways of the program against the long way, which is the model's only one: packets that
//! are in one table or in none, and those in several tables of one plain limit each.

use fastrand::Rng;
use limiter_common::header::Direction;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_tests::packet::{Frame, Transport};
use limiter_tests::program::rule_set;
use limiter_tests::root::require_root;

use super::{both, compare_all, frames, judge, run_at};

/// Rule sets in which few packets of [`frame`] are in two tables, keys that fit into a name and
/// keys that do not; and in the last three, sets in which most are in two to five tables.
const RULE_SETS: [&str; 8] = [
    "descriptors:
  - {key: destination_port, value: 22, descriptors: [{key: remote_address, rate_limit: {rate: 3/s, burst: 2}}]}
",
    "descriptors:
  - {key: destination_port, value: 22, descriptors: [{key: remote_address, rate_limits: [{rate: 5/s, burst: 3}, {rate: 2000B/s, burst: 3000B}]}]}
  - {key: destination_port, value: 53, descriptors: [{key: remote_address, rate_limit: {rate: 1/min, burst: 4}, shadow_mode: true}]}
  - {key: destination_port, value: 443, descriptors: [{key: remote_address, rate_limit: {rate: 2/s}, action: {mark: {dscp: 10}}}]}
",
    "descriptors:
  - {key: remote_address, rate_limit: {rate: 6/s, burst: 4}}
  - {key: remote_address, value: 192.0.2.0/30, rate_limit: {unlimited: true}}
  - {key: destination_port, value: 22, descriptors: [{key: remote_address, rate_limit: {rate: 3/s, burst: 2}}]}
  - {key: destination_port, value: 53, descriptors: [{key: remote_address, rate_limit: {unlimited: true}}]}
",
    "descriptors:
  - {key: remote_address, rate_limit: {rate: 1/day, burst: 40}, action: reject}
  - {key: tcp_flags, value: syn, descriptors: [{key: remote_address, rate_limit: {rate: 3/s, burst: 2}}]}
  - {key: protocol, value: udp, descriptors: [{key: remote_address, rate_limit: {rate: 4/s, burst: 1}}]}
",
    "descriptors:
  - {key: remote_address, rate_limit: {rate: 30/s, burst: 9}}
  - {key: destination_port, value: 22, descriptors: [{key: source_port, descriptors: [{key: remote_address, rate_limit: {rate: 2/s, burst: 2}}]}]}
",
    "descriptors:
  - {key: destination_port, value: 22, descriptors: [{key: remote_address, rate_limit: {rate: 3/s, burst: 4}}]}
  - {key: protocol, descriptors: [{key: remote_address, rate_limit: {rate: 900B/s, burst: 2kB}}]}
  - {key: tcp_flags, value: syn, descriptors: [{key: remote_address, rate_limit: {rate: 2/s, burst: 2}}]}
",
    "descriptors:
  - {key: remote_address, rate_limit: {rate: 5/s, burst: 3}}
  - {key: fragment, value: whole, descriptors: [{key: remote_address, rate_limit: {rate: 6/s, burst: 3}}]}
  - {key: destination_port, descriptors: [{key: remote_address, rate_limit: {rate: 4/s, burst: 3}}]}
  - {key: source_port, descriptors: [{key: remote_address, rate_limit: {rate: 5/s, burst: 2}}]}
  - {key: dscp, value: 0, descriptors: [{key: remote_address, rate_limit: {rate: 3kB/s, burst: 2kB}}]}
  - {key: ttl, descriptors: [{key: protocol, descriptors: [{key: remote_address, rate_limit: {rate: 9/s, burst: 5}}]}]}
",
    "descriptors:
  - {key: remote_address, rate_limit: {rate: 1/min, burst: 5}, action: reject}
  - {key: remote_address, value: 192.0.2.0/29, rate_limit: {unlimited: true}}
  - {key: protocol, descriptors: [{key: remote_address, rate_limit: {rate: 6/s, burst: 3}}]}
  - {key: destination_port, value: 22, descriptors: [{key: remote_address, rate_limits: [{rate: 5/s, burst: 3}, {rate: 9/min}]}]}
  - {key: destination_port, value: 53, descriptors: [{key: remote_address, rate_limit: {rate: 2/s}, shadow_mode: true}]}
",
];

/// A frame that is read at once, mostly.
fn frame(random: &mut Rng) -> Vec<u8> {
    let frame = if random.bool() {
        Frame::ipv4(frames::source_v4(random), [198, 51, 100, 1])
    } else {
        Frame::ipv6(frames::source_v6(random), [0xfd; 16])
    };
    let (source, destination) =
        (random.u16(40_000..40_003), [22, 22, 53, 443, 9][random.usize(0..5)]);
    let transport = match random.u8(0..9) {
        0..4 => Transport::Udp { source, destination },
        4..8 => Transport::Tcp { source, destination, flags: [2, 16, 18, 4][random.usize(0..4)] },
        _ => Transport::Echo { id: 1, sequence: 1 },
    };
    frame.transport(transport).payload(&vec![0; random.usize(0..600)]).build()
}

#[test]
fn the_short_ways_are_the_long_one() {
    require_root();
    let mut reasons = [0; Reason::COUNT];
    for seed in 1..=4 {
        let mut random = Rng::with_seed(seed);
        let (mut program, mut model) = both(seed);
        let mut now = 30 * 86_400_000_000_000;
        for (number, file) in RULE_SETS.iter().cycle().take(24).enumerate() {
            let context = format!("seed {seed}, rule set {number}\n{file}");
            let set = rule_set(file).unwrap();
            let plan = program.apply(&set).unwrap();
            model.commit(plan, Ticks::from_nanos(now));
            for _ in 0..2_000 {
                now = frames::advance(&mut random, now);
                let frame = frame(&mut random);
                let ticks = Ticks::from_nanos(now);
                let expected = model.judge(&frame, ticks).reason;
                program.set_time(ticks).unwrap();
                let verdict = program.run(&frame, 1).unwrap();
                assert_eq!(verdict, expected.verdict(), "{context}{expected:?} {frame:02x?}");
            }
            compare_all(&mut program, &model, &context);
        }
        for (sum, tally) in reasons.iter_mut().zip(model.reasons()) {
            *sum += tally.packets;
        }
    }
    // The frames met what they are for.
    for reason in [Reason::Conforming, Reason::OverLimit, Reason::NoRule, Reason::Shadow] {
        let packets = reasons[usize::try_from(reason.index()).unwrap()];
        assert!(packets > 1_000, "{packets} {}", reason.name());
    }
}

/// Rule sets of outgoing packets. In all but the last three, an IPv4 packet is in one table only,
/// by nothing but its destination; between two of them, buckets go on.
const OUTGOING: [&str; 8] = [
    "descriptors:
  - {key: remote_address, direction: out, rate_limit: {rate: 3/s, burst: 2}}
",
    "descriptors:
  - {key: remote_address, direction: out, rate_limit: {rate: 9/s, burst: 4}}
  - {key: remote_address, direction: out, value: 192.0.2.0/30, rate_limit: {unlimited: true}}
  - {key: remote_address, direction: out, value: 192.0.3.1, rate_limit: {rate: 1/day}}
",
    "descriptors:
  - {key: remote_address, rate_limit: {rate: 6/s, burst: 3}}
  - {key: destination_port, rate_limit: {rate: 9/s}}
  - {key: remote_address, direction: out, rate_limit: {rate: 20kB/s, burst: 3kB}, shadow_mode: true}
",
    "descriptors:
  - {key: remote_address, direction: both, rate_limit: {rate: 4/s, burst: 3}}
  - {key: remote_address, direction: both, value: 192.0.2.0/30, rate_limit: {rate: 2/s}}
",
    "descriptors:
  - {key: remote_address, direction: out, value: 192.0.2.0/30, rate_limit: {rate: 2/s}}
  - {key: remote_address, direction: out, value: '2001:db8::/32', rate_limit: {rate: 2/s}}
",
    "descriptors:
  - {key: remote_address, direction: out, value: '2001:db8::/32', rate_limit: {rate: 2/s}}
",
    "descriptors:
  - {key: remote_address, direction: out, rate_limit: {rate: 3/s, burst: 2}}
  - {key: source_port, value: 22, direction: out, rate_limit: {rate: 3/s, burst: 2}}
",
    "descriptors:
  - {key: remote_address, direction: out, rate_limit: {rate: 3/s, burst: 2}}
  - {key: protocol, value: udp, rate_limit: {rate: 3 flows/s, burst: 2}}
",
];

#[test]
fn the_short_way_out_is_the_long_one() {
    require_root();
    let mut reasons = [0; Reason::COUNT];
    for seed in 1..=4 {
        let mut random = Rng::with_seed(seed);
        let (mut program, mut model) = both(seed);
        let mut now = 30 * 86_400_000_000_000;
        for number in 0..32 {
            let file = OUTGOING[random.usize(0..OUTGOING.len())];
            let context = format!("seed {seed}, rule set {number}\n{file}");
            let set = rule_set(file).unwrap();
            program.set_time(Ticks::from_nanos(now)).unwrap();
            let plan = program.apply(&set).unwrap();
            model.commit(plan, Ticks::from_nanos(now));
            for _ in 0..1_000 {
                now = frames::advance(&mut random, now);
                let direction = [Direction::In, Direction::Out][usize::from(random.u8(0..4) > 0)];
                let segments = frames::hook(&mut random).and_then(|(_, segments)| segments);
                let frame = frames::frame(&mut random, direction);
                // A test run at tc refuses frames that end in their IP header.
                if frame.len() < 14 + 40 {
                    continue;
                }
                let (hook, ticks) = (Some((direction, segments)), Ticks::from_nanos(now));
                let expected = judge(&mut model, &frame, hook, ticks).reason;
                program.set_time(ticks).unwrap();
                let (verdict, _) = run_at(&mut program, &frame, hook);
                assert_eq!(
                    verdict,
                    expected.verdict(),
                    "{context}{expected:?} {hook:?} {frame:02x?}"
                );
            }
            compare_all(&mut program, &model, &context);
        }
        for (sum, tally) in reasons.iter_mut().zip(model.reasons()) {
            *sum += tally.packets;
        }
    }
    // The frames met what they are for.
    for reason in
        [Reason::Conforming, Reason::OverLimit, Reason::NoRule, Reason::Shadow, Reason::Unlimited]
    {
        let packets = reasons[usize::try_from(reason.index()).unwrap()];
        assert!(packets > 1_000, "{packets} {}", reason.name());
    }
}
