//! Super-frames at tc of segments of any size: every algorithm decides as an account in exact
//! numbers does, of the packets that the kernel makes of them. No window has more than the bound,
//! and of a bucket one super-frame on top.

#![expect(clippy::unwrap_used, reason = "a failed conversion is a failed test")]

use limiter_common::header::Direction;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_decision::packet::Segments;
use limiter_model::{Framing, Model, Packet};
use limiter_rules::{Environment, RuleFile};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const START: u64 = 1_000 * MINUTE;

/// Nanoseconds by which a bucket may differ from one in exact fractions: charges are rounded up to
/// ticks.
const ROUNDING: u128 = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Token,
    Leaky,
    Fixed,
    Counter,
    Slots,
    Strict,
}

impl Algorithm {
    const ALL: [Self; 6] =
        [Self::Token, Self::Leaky, Self::Fixed, Self::Counter, Self::Slots, Self::Strict];

    fn yaml(self) -> &'static str {
        match self {
            Self::Token => "algorithm: token_bucket",
            Self::Leaky => "algorithm: leaky_bucket",
            Self::Fixed => "algorithm: fixed_window",
            Self::Counter => "algorithm: sliding_counter",
            Self::Slots => "algorithm: sliding_slots, slots: 4",
            Self::Strict => "algorithm: sliding_slots, slots: 4, strict: true",
        }
    }

    /// Nanoseconds of a window or slot, and how many of them count.
    fn windows(self) -> (u64, u64) {
        match self {
            Self::Slots => (MINUTE / 4, 4),
            Self::Strict => (MINUTE / 3, 4),
            _ => (MINUTE, 1),
        }
    }
}

/// What of a minute is used, in whole units and nanoseconds.
struct Account {
    algorithm: Algorithm,
    limit: u64,
    /// Nanoseconds times the limit: when a bucket is full again.
    tat: u128,
    /// Windows or slots with what passed in them.
    passed: Vec<(u64, u64)>,
}

impl Account {
    fn new(algorithm: Algorithm, limit: u64) -> Self {
        Self { algorithm, limit, tat: 0, passed: Vec::new() }
    }

    fn sum(&self, windows: impl Fn(u64) -> bool) -> u64 {
        self.passed.iter().filter(|(at, _)| windows(*at)).map(|(_, units)| units).sum()
    }

    /// True if a frame passes, or none where that is within the rounding.
    fn passes(&self, now: u64, units: u64, many: bool) -> Option<bool> {
        let minute = u128::from(MINUTE);
        let arrived = u128::from(now) * u128::from(self.limit);
        let (width, slots) = self.algorithm.windows();
        let window = now / width;
        let used = match self.algorithm {
            Algorithm::Token | Algorithm::Leaky => {
                let (cost, burst) = match self.algorithm {
                    Algorithm::Leaky => (0, 0),
                    _ => (u128::from(units) * minute, u128::from(self.limit) * minute),
                };
                let end = arrived + if many { burst.max(cost) } else { burst };
                let next = self.tat.max(arrived) + cost;
                let near = next.abs_diff(end) <= ROUNDING * u128::from(self.limit);
                return if near && self.tat > arrived { None } else { Some(next <= end) };
            }
            _ if units > self.limit => return Some(false),
            Algorithm::Fixed => self.sum(|at| at == window),
            Algorithm::Counter => {
                let before = self.sum(|at| at + 1 == window);
                let left = u128::from(before) * u128::from(width - now % width);
                let current = self.sum(|at| at == window);
                let all = left + u128::from(current + units) * u128::from(width);
                return Some(all <= u128::from(self.limit) * u128::from(width));
            }
            Algorithm::Slots | Algorithm::Strict => self.sum(|at| at + slots > window),
        };
        Some(used + units <= self.limit)
    }

    fn charge(&mut self, now: u64, units: u64) {
        let arrived = u128::from(now) * u128::from(self.limit);
        self.tat = self.tat.max(arrived) + u128::from(units) * u128::from(MINUTE);
        self.passed.push((now / self.algorithm.windows().0, units));
    }

    /// The most units in a time that is not longer than this, where no frame has more than
    /// `largest`.
    fn bound(&self, time: u64, largest: u64) -> u64 {
        let windows = |width| time.div_ceil(width) + 1;
        let (width, slots) = self.algorithm.windows();
        let rate = u128::from(self.limit) * u128::from(time) / u128::from(MINUTE) + 1;
        let rate = u64::try_from(rate).unwrap();
        match self.algorithm {
            Algorithm::Leaky => rate + self.limit + largest,
            Algorithm::Token => rate + self.limit.max(largest),
            Algorithm::Counter => rate + self.limit,
            Algorithm::Fixed => self.limit * windows(width),
            Algorithm::Slots | Algorithm::Strict => self.limit * windows(width).div_ceil(slots),
        }
    }
}

/// The headers of a frame.
#[derive(Clone, Copy, Debug)]
struct Kind {
    v6: bool,
    /// Words of options, of TCP; a datagram of UDP otherwise.
    tcp: Option<u8>,
    /// IP options, or an extension header, of eight bytes.
    long: bool,
}

fn kind() -> impl Strategy<Value = Kind> {
    (any::<[bool; 2]>(), prop::option::of(0u8..=10)).prop_map(|([v6, long], tcp)| Kind {
        v6,
        tcp,
        long,
    })
}

impl Kind {
    /// All headers, in front of a payload.
    fn headers(self, payload: usize) -> Vec<u8> {
        let Self { v6, tcp, long } = self;
        let (protocol, transport) = match tcp {
            Some(words) => {
                let mut header = vec![0, 9, 0, 9, 0, 0, 0, 1, 0, 0, 0, 1, (5 + words) << 4, 0x10];
                header.resize(20 + 4 * usize::from(words), 1);
                (6, header)
            }
            None => (17, vec![0, 9, 0, 9, 0, 0, 0, 0]),
        };
        let extra: u8 = if long { 8 } else { 0 };
        let length = transport.len() + payload + usize::from(extra) + if v6 { 0 } else { 20 };
        let [high, low] = u16::try_from(length).unwrap_or(0).to_be_bytes();
        let mut headers = vec![2; 12];
        if v6 {
            headers.extend([0x86, 0xdd, 0x60, 0, 0, 0, high, low]);
            headers.extend([if long { 60 } else { protocol }, 64]);
            headers.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1].repeat(2));
            headers.extend(long.then_some([protocol, 0, 1, 4, 0, 0, 0, 0]).into_iter().flatten());
        } else {
            headers.extend([0x08, 0x00, 0x45 + extra / 4, 0, high, low, 0, 0, 0, 0]);
            headers.extend([64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 1]);
            headers.resize(headers.len() + usize::from(extra), 1);
        }
        headers.extend(transport);
        headers
    }
}

/// A frame: its payload in bytes, and in each of its segments.
#[derive(Clone, Copy, Debug)]
struct Sent {
    gap: u64,
    kind: Kind,
    payload: usize,
    size: usize,
    /// True of a guest's, which says no number of segments.
    guest: bool,
}

fn sent() -> impl Strategy<Value = Sent> {
    let gap = prop_oneof![
        3 => Just(0u64),
        3 => 0..SECOND,
        2 => 0..MINUTE,
        1 => 0..20 * MINUTE,
    ];
    let size = prop_oneof![1 => 1usize..20, 3 => 20usize..1_400];
    (gap, kind(), prop_oneof![1 => 1usize..100, 1 => 1usize..3_000, 1 => 1usize..60_000], size)
        .prop_flat_map(|(gap, kind, payload, size)| {
            // Costs are exact up to 2^17 bytes with all headers.
            let payload = payload.min(size * 500);
            prop::bool::ANY.prop_map(move |guest| Sent { gap, kind, payload, size, guest })
        })
}

#[derive(Clone, Copy, Debug)]
struct Rule {
    algorithm: Algorithm,
    bytes: bool,
    outgoing: bool,
    limit: u64,
}

fn rule() -> impl Strategy<Value = Rule> {
    let number = prop::bool::ANY.prop_flat_map(|bytes| {
        let limit = if bytes { 1_600..200_000u64 } else { 1..60u64 };
        limit.prop_map(move |limit| (bytes, limit))
    });
    (prop::sample::select(Algorithm::ALL.to_vec()), number, prop::bool::ANY).prop_map(
        |(algorithm, (bytes, limit), outgoing)| Rule { algorithm, bytes, outgoing, limit },
    )
}

fn model(rule: Rule) -> Model {
    let Rule { algorithm, bytes, outgoing, limit } = rule;
    let text = format!(
        "descriptors:\n  - key: generic_key\n    value: all\n    direction: {}\n    rate_limit: \
         {{unit: minute, requests_per_unit: {limit}, count: {}, {}}}\n",
        if outgoing { "out" } else { "in" },
        if bytes { "bytes" } else { "packets" },
        algorithm.yaml()
    );
    let set = RuleFile::parse("super.yaml", text.as_bytes(), 1522).unwrap().rules;
    let machine = Environment { in_at_tc: Some(true), ..Environment::of_frame(1522) };
    let mut model = Model::new();
    let plan = model.installed().plan(&set, 1, 1024, &machine).unwrap();
    model.commit(plan, Ticks::from_nanos(START));
    model
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 60,
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        max_shrink_iters: 2000,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    /// A super-frame larger than a window is refused; one larger than a bucket passes when that is
    /// full, and is owed.
    #[test]
    fn every_algorithm_counts_super_frames_as_an_exact_account_does(
        rule in rule(), all in prop::collection::vec(sent(), 1..150),
    ) {
        let mut model = model(rule);
        let mut account = Account::new(rule.algorithm, rule.limit);
        let mut now = START;
        let mut passed: Vec<(u64, u64)> = Vec::new();
        for Sent { gap, kind, payload, size, guest } in all {
            now += gap;
            let mut frame = kind.headers(payload);
            let headers = frame.len() as u64;
            frame.resize(frame.len() + payload, 0);
            let packets = payload.div_ceil(size) as u64;
            let units = if rule.bytes { headers * packets + payload as u64 } else { packets };
            let count = if guest { 0 } else { u32::try_from(packets).unwrap() };
            let segments =
                (packets > 1).then(|| Segments { count, size: u32::try_from(size).unwrap() });
            if packets == 1 && rule.bytes && units > rule.limit {
                // Refused when the rule is read, of frames that there are.
                continue;
            }
            let direction = if rule.outgoing { Direction::Out } else { Direction::In };
            let packet = Packet::at_tc(Framing::Ethernet, &frame, direction, segments, 1);
            let reason = model.judge_packet(&packet, Ticks::from_nanos(now)).reason;
            prop_assert!(matches!(reason, Reason::Conforming | Reason::OverLimit), "{:?}", reason);
            let passes = reason == Reason::Conforming;
            if let Some(expected) = account.passes(now, units, packets > 1) {
                prop_assert_eq!(passes, expected, "{:?}, {} units", kind, units);
            }
            if passes {
                account.charge(now, units);
                passed.push((now, units));
            }
        }
        for first in 0..passed.len() {
            let mut sum = 0;
            let mut largest = 0;
            for &(at, units) in &passed[first..] {
                sum += units;
                largest = largest.max(units);
                let bound = account.bound(at - passed[first].0, largest);
                prop_assert!(sum <= bound, "{} of {}", sum, bound);
            }
        }
    }
}
