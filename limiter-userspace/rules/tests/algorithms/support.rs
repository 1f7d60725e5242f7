//! Arrivals, and the check of a bound in every window.

use limiter_common::wire::Count;
use limiter_rules::compile::Quota;
use limiter_rules::{Period, Unit};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

/// The largest frame in these tests, bytes.
pub(crate) const FRAME: u64 = 1522;

/// The last nanosecond of the clock's range.
pub(crate) const END: u64 = (1 << 58) - 1;

pub(crate) fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 1000,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    /// Nanoseconds since boot.
    pub(crate) at: u64,
    pub(crate) units: u64,
}

/// A pattern of arrivals in terms of a window: a start, and gaps.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    start: Start,
    steps: Vec<(u64, i64, u64)>,
}

#[derive(Clone, Copy, Debug)]
enum Start {
    Boot(u64),
    Middle(u64),
    End(u64),
}

/// Every regime: back to back, a few at a time, just before, on and just after a window's length,
/// long idle; at boot, in the middle of the clock's range and at its end.
pub(crate) fn pattern() -> impl Strategy<Value = Pattern> {
    let start = prop_oneof![
        (0u64..3000).prop_map(Start::Boot),
        (0u64..1 << 57).prop_map(Start::Middle),
        (0u64..5000).prop_map(Start::End),
    ];
    let step = (
        prop::sample::select(vec![
            0u64, 0, 0, 0, 1, 10, 20, 50, 125, 250, 333, 500, 900, 999, 1000, 1001, 2000, 100_000,
        ]),
        -1i64..=1,
        60u64..1515,
    );
    (start, prop::collection::vec(step, 1..150)).prop_map(|(start, steps)| Pattern { start, steps })
}

impl Pattern {
    /// The packets, for a window of `width` nanoseconds. Time never runs backwards.
    pub(crate) fn offered(&self, width: u64, count: Count) -> Vec<Packet> {
        let thousandths = |share: u64| {
            u64::try_from(u128::from(width) * u128::from(share) / 1000).unwrap().min(1 << 57)
        };
        let mut at = match self.start {
            Start::Boot(share) => thousandths(share),
            Start::Middle(nanos) => nanos,
            Start::End(share) => END - thousandths(share),
        };
        let mut packets = Vec::new();
        for (share, nudge, length) in &self.steps {
            at = (at + thousandths(*share).saturating_add_signed(*nudge)).min(END);
            let units = match count {
                Count::Packets | Count::Syns | Count::Flows => 1,
                Count::Bytes => *length,
            };
            packets.push(Packet { at, units });
        }
        packets
    }

    /// This pattern with room behind it: in the last moments of the range a debt that reaches past
    /// it is refused, which a measure without a range does not do.
    pub(crate) fn away_from_the_end(&self) -> Self {
        let start = match self.start {
            Start::End(share) => Start::Boot(share),
            other => other,
        };
        Self { start, steps: self.steps.clone() }
    }

    /// Packets of this pattern by a clock that is sometimes late, by up to a few windows.
    pub(crate) fn with_late_clocks(&self, width: u64, count: Count) -> Vec<Packet> {
        let mut packets = self.offered(width, count);
        for (index, packet) in packets.iter_mut().enumerate() {
            if index % 3 == 1 {
                packet.at = packet.at.saturating_sub(width / 7 * (index as u64 % 20));
            }
        }
        packets
    }
}

/// Any length of time of a rate: units, and multiples that divide a week and that do not.
pub(crate) fn period() -> impl Strategy<Value = Period> {
    period_up_to(Period { unit: Unit::Day, multiplier: 366 })
}

/// Periods up to a week, so that large bursts of them fit a bucket.
pub(crate) fn short_period() -> impl Strategy<Value = Period> {
    period_up_to(Period::one(Unit::Week))
}

fn period_up_to(longest: Period) -> impl Strategy<Value = Period> {
    let multiplier = prop_oneof![
        3 => Just(1),
        3 => prop::sample::select(vec![2u64, 3, 5, 7, 10, 13, 30]),
        1 => 1u64..,
    ];
    let unit = prop::sample::select(Unit::ALL.to_vec());
    (unit, multiplier).prop_map(move |(unit, multiplier)| {
        let most = longest.seconds() / unit.seconds();
        let multiplier = u32::try_from((multiplier - 1) % most + 1).unwrap();
        Period { unit, multiplier }
    })
}

/// A time after 1900 at which a machine may boot: any up to the end of 2100, in nanoseconds.
pub(crate) fn boot() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0..1u64 << 50, 0..6_343_000_000_000_000_000u64]
}

/// A small number of packets or bytes in any length of time, so that a pattern reaches it.
pub(crate) fn quota() -> impl Strategy<Value = Quota> {
    let amount = prop_oneof![
        (1u64..40).prop_map(|packets| (Count::Packets, packets)),
        (FRAME..60_000).prop_map(|bytes| (Count::Bytes, bytes)),
    ];
    (amount, period()).prop_map(|((count, requests_per_unit), period)| {
        Quota::new(count, requests_per_unit, period)
    })
}

pub(crate) fn packets() -> impl Strategy<Value = Quota> {
    packets_up_to(64)
}

pub(crate) fn packets_up_to(most: u64) -> impl Strategy<Value = Quota> {
    (1..=most, period()).prop_map(|(requests_per_unit, period)| {
        Quota::new(Count::Packets, requests_per_unit, period)
    })
}

/// The packets that `admit` lets pass, in order.
pub(crate) fn admitted(offered: &[Packet], mut admit: impl FnMut(Packet) -> bool) -> Vec<Packet> {
    offered.iter().copied().filter(|packet| admit(*packet)).collect()
}

/// One window that starts and ends with an admitted packet: the tightest of all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) sum: u128,
    /// Units of the last packet alone.
    pub(crate) last: u128,
    /// When its first packet came.
    pub(crate) start: u64,
    /// From the first to the last packet, both included, in nanoseconds.
    pub(crate) length: u128,
}

/// Asserts that something holds in every window. `packets` are in the order of time.
pub(crate) fn in_every_window(packets: &[Packet], holds: impl Fn(Window) -> bool) {
    for (index, first) in packets.iter().enumerate() {
        let mut sum = 0;
        for packet in &packets[index..] {
            sum += u128::from(packet.units);
            let window = Window {
                sum,
                last: u128::from(packet.units),
                start: first.at,
                length: u128::from(packet.at - first.at),
            };
            assert!(holds(window), "{window:?}");
        }
    }
}

/// The whole run as one window, by the extremes of its clocks.
pub(crate) fn whole(packets: &[Packet]) -> Option<Window> {
    let first = packets.iter().map(|packet| packet.at).min()?;
    let last = packets.iter().map(|packet| packet.at).max()?;
    let sum = packets.iter().map(|packet| u128::from(packet.units)).sum();
    let largest = packets.iter().map(|packet| u128::from(packet.units)).max()?;
    Some(Window { sum, last: largest, start: first, length: u128::from(last - first) })
}
