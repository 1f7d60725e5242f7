//! The markers of RFC 2698 and RFC 4115.

use std::sync::atomic::AtomicU64;

use limiter_common::time::Ticks;
use limiter_common::wire::{Count, TwoRate};
use limiter_decision::algorithm::two_rate::{Arrival, Colour, rfc2698, rfc4115};
use limiter_rules::compile::{self, Upper};
use limiter_rules::model::Quota;
use limiter_rules::{Period, RateLimit, Unit};
use proptest::prelude::*;

use crate::support::{FRAME, Packet, Pattern, config, in_every_window, pattern, short_period};

fn rate(count: Count) -> impl Strategy<Value = RateLimit> {
    (0u32..=7, 1u64..10, short_period(), 1u64..40).prop_map(
        move |(exponent, digit, period, burst)| {
            Quota::new(count, digit * 10u64.pow(exponent), period)
                .with_burst(if count == Count::Packets { burst } else { burst * FRAME })
        },
    )
}

fn rates() -> impl Strategy<Value = (RateLimit, RateLimit)> {
    prop_oneof![
        (rate(Count::Packets), rate(Count::Packets)),
        (rate(Count::Bytes), rate(Count::Bytes)),
    ]
}

/// Colours of arrivals: none marked before, or any.
fn colours() -> impl Strategy<Value = Vec<Colour>> {
    let any = prop::sample::select(vec![Colour::Green, Colour::Yellow, Colour::Red]);
    prop_oneof![Just(vec![Colour::Green; 150]), prop::collection::vec(any, 150)]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Rfc2698,
    Rfc4115,
}

fn mark(scheme: Scheme, limits: &TwoRate, offered: &[(Packet, Colour)]) -> Vec<Colour> {
    let (committed, upper) = (AtomicU64::new(0), AtomicU64::new(0));
    offered
        .iter()
        .map(|(packet, colour)| {
            let now = Ticks::from_nanos(packet.at);
            let arrival = Arrival { now, units: packet.units, colour: *colour };
            let marked = match scheme {
                Scheme::Rfc2698 => rfc2698(limits, &committed, &upper, arrival),
                Scheme::Rfc4115 => rfc4115(limits, &committed, &upper, arrival),
            };
            assert!(marked.colour() >= *colour, "a colour is never improved");
            marked.colour()
        })
        .collect()
}

fn offered(pattern: &Pattern, limits: &TwoRate, colours: &[Colour]) -> Vec<(Packet, Colour)> {
    let limit = &limits.committed;
    let units = if limit.counts() == Count::Packets { 1 } else { 800 };
    let interval = limiter_decision::gcra::cost(limit, units).as_nanos().max(1);
    let packets = pattern.offered(interval, limit.counts());
    packets.into_iter().zip(colours.iter().copied()).collect()
}

/// Packets that got one of the colours.
fn of(offered: &[(Packet, Colour)], marked: &[Colour], wanted: &[Colour]) -> Vec<Packet> {
    let pairs = offered.iter().zip(marked);
    pairs.filter(|(_, marked)| wanted.contains(marked)).map(|((packet, _), _)| *packet).collect()
}

/// burst + rate * t in every window (bytes: rounded up to a whole byte).
fn assert_bucket(rate: &RateLimit, packets: &[Packet]) {
    let period = u128::from(rate.period.nanos());
    let slack = u128::from(rate.count == Count::Bytes);
    in_every_window(packets, |window| {
        window.sum.saturating_sub(u128::from(rate.burst) + slack) * period
            <= u128::from(rate.requests_per_unit) * window.length
    });
}

/// A bucket of rational numbers: `requests` a nanosecond into `burst * period`.
struct Fluid {
    rate: RateLimit,
    tokens: u128,
    last: u64,
}

impl Fluid {
    fn new(rate: RateLimit) -> Self {
        Self { rate, tokens: u128::from(rate.burst) * Self::period(&rate), last: 0 }
    }

    fn period(rate: &RateLimit) -> u128 {
        u128::from(rate.period.nanos())
    }

    fn holds(&mut self, packet: Packet) -> bool {
        let added = u128::from(packet.at - self.last) * u128::from(self.rate.requests_per_unit);
        let most = u128::from(self.rate.burst) * Self::period(&self.rate);
        self.tokens = most.min(self.tokens + added);
        self.last = packet.at;
        self.tokens >= u128::from(packet.units) * Self::period(&self.rate)
    }

    fn take(&mut self, packet: Packet) {
        self.tokens -= u128::from(packet.units) * Self::period(&self.rate);
    }
}

/// The two RFCs, word for word.
fn oracle(
    scheme: Scheme,
    lower: RateLimit,
    upper: RateLimit,
    offered: &[(Packet, Colour)],
) -> Vec<Colour> {
    let (mut lower, mut upper) = (Fluid::new(lower), Fluid::new(upper));
    let mut one = |packet: Packet, colour: Colour| {
        let (in_lower, in_upper) = (lower.holds(packet), upper.holds(packet));
        match scheme {
            Scheme::Rfc2698 => {
                if colour == Colour::Red || !in_upper {
                    return Colour::Red;
                }
                upper.take(packet);
                if colour == Colour::Yellow || !in_lower {
                    return Colour::Yellow;
                }
                lower.take(packet);
                Colour::Green
            }
            Scheme::Rfc4115 => {
                if colour == Colour::Green && in_lower {
                    lower.take(packet);
                    return Colour::Green;
                }
                if colour != Colour::Red && in_upper {
                    upper.take(packet);
                    return Colour::Yellow;
                }
                Colour::Red
            }
        }
    };
    offered.iter().map(|(packet, colour)| one(*packet, *colour)).collect()
}

proptest! {
    #![proptest_config(config())]

    /// RFC 2698: green keeps the committed bound, green and yellow the peak's.
    #[test]
    fn rfc2698_is_never_over((lower, upper) in rates(), pattern in pattern(), colours in colours()) {
        let Ok(limits) = compile::two_rate(&lower, &upper, Upper::Total, FRAME) else { return Ok(()) };
        let offered = offered(&pattern, &limits, &colours);
        let marked = mark(Scheme::Rfc2698, &limits, &offered);
        assert_bucket(&lower, &of(&offered, &marked, &[Colour::Green]));
        assert_bucket(&upper, &of(&offered, &marked, &[Colour::Green, Colour::Yellow]));
    }

    /// RFC 4115: green keeps the committed bound, yellow the excess's, and green is what a lone
    /// committed bucket would have made green.
    #[test]
    fn rfc4115_is_never_over((lower, upper) in rates(), pattern in pattern(), colours in colours()) {
        let Ok(limits) = compile::two_rate(&lower, &upper, Upper::Excess, FRAME) else { return Ok(()) };
        let offered = offered(&pattern, &limits, &colours);
        let marked = mark(Scheme::Rfc4115, &limits, &offered);
        let green = of(&offered, &marked, &[Colour::Green]);
        assert_bucket(&lower, &green);
        assert_bucket(&upper, &of(&offered, &marked, &[Colour::Yellow]));
        let none = TwoRate { upper: limits.committed, ..limits };
        let alone = mark(Scheme::Rfc4115, &none, &offered);
        prop_assert_eq!(green, of(&offered, &alone, &[Colour::Green]));
    }

    /// The RFCs' own text in rational numbers agrees, packet by packet, at rates that are a whole
    /// number of ticks.
    #[test]
    fn agrees_with_the_rfcs(
        lower in prop::sample::select(vec![1u64, 2, 5, 10, 100, 1000, 10_000, 1_000_000]),
        upper in prop::sample::select(vec![1u64, 2, 5, 10, 100, 1000, 10_000, 1_000_000]),
        bursts in (1u64..20, 1u64..20),
        pattern in pattern(),
        colours in colours(),
    ) {
        let rate = |requests_per_unit, burst| {
            Quota::new(Count::Packets, requests_per_unit, Period::one(Unit::Second)).with_burst(burst)
        };
        let (lower, upper) = (rate(lower, bursts.0), rate(upper, bursts.1));
        for (scheme, meaning) in [(Scheme::Rfc2698, Upper::Total), (Scheme::Rfc4115, Upper::Excess)] {
            if let Ok(limits) = compile::two_rate(&lower, &upper, meaning, FRAME) {
                let offered = offered(&pattern.away_from_the_end(), &limits, &colours);
                prop_assert_eq!(
                    mark(scheme, &limits, &offered),
                    oracle(scheme, lower, upper, &offered)
                );
            }
        }
    }

    /// A source within the committed rate is green throughout, in both schemes.
    #[test]
    fn conforming_source_stays_green((lower, upper) in rates(), count in 1u64..100) {
        // A peak burst of a frame is tighter than any other.
        let Ok(limits) = compile::two_rate(&lower, &upper, Upper::Total, FRAME) else { return Ok(()) };
        let units = if lower.count == Count::Packets { 1 } else { 800 };
        let gap = limiter_decision::gcra::cost(&limits.committed, units).as_nanos() + 1;
        let offered: Vec<_> = (0..count)
            .map(|index| (Packet { at: (1 << 56) + index * gap, units }, Colour::Green))
            .collect();
        for scheme in [Scheme::Rfc2698, Scheme::Rfc4115] {
            prop_assert!(mark(scheme, &limits, &offered).iter().all(|c| *c == Colour::Green));
        }
    }

    /// More committed rate or burst never makes fewer packets green, more of the upper never fewer
    /// pass.
    #[test]
    fn monotone(
        lower in rate(Count::Packets), upper in rate(Count::Packets),
        more in 2u64..10, pattern in pattern(),
    ) {
        let faster = |rate: RateLimit| RateLimit { requests_per_unit: rate.requests_per_unit * more, ..rate };
        let larger = |rate: RateLimit| RateLimit { burst: rate.burst * more, ..rate };
        for (scheme, meaning) in [(Scheme::Rfc2698, Upper::Total), (Scheme::Rfc4115, Upper::Excess)] {
            let compiled = |lower, upper| compile::two_rate(&lower, &upper, meaning, FRAME).ok();
            let Some(limits) = compiled(lower, upper) else { return Ok(()) };
            let offered = offered(&pattern, &limits, &[Colour::Green; 150]);
            let count = |limits: &TwoRate, wanted: &[Colour]| {
                of(&offered, &mark(scheme, limits, &offered), wanted).len()
            };
            let (green, passed) = ([Colour::Green], [Colour::Green, Colour::Yellow]);
            for more in [faster(lower), larger(lower)].map(|lower| compiled(lower, upper)) {
                let Some(more) = more else { continue };
                prop_assert!(count(&more, &green) >= count(&limits, &green));
            }
            for more in [faster(upper), larger(upper)].map(|upper| compiled(lower, upper)) {
                let Some(more) = more else { continue };
                prop_assert!(count(&more, &passed) >= count(&limits, &passed));
            }
        }
    }

    /// Neither idle time nor a late clock fills a bucket past its burst.
    #[test]
    fn idle_and_late_clocks_never_overfill(
        (lower, upper) in rates(), idle in 0u64..1 << 56, back in 0u64..1 << 56,
    ) {
        let Ok(limits) = compile::two_rate(&lower, &upper, Upper::Total, FRAME) else { return Ok(()) };
        let units = if lower.count == Count::Packets { 1 } else { FRAME };
        let burst = |at| vec![(Packet { at, units }, Colour::Green); 50];
        let now = (1 << 56) + idle;
        let offered = [burst(now), burst(now - back)].concat();
        let marked = mark(Scheme::Rfc2698, &limits, &offered);
        let green = of(&offered, &marked, &[Colour::Green]).len() as u64;
        let passed = of(&offered, &marked, &[Colour::Green, Colour::Yellow]).len() as u64;
        prop_assert_eq!(passed, upper.burst / units);
        prop_assert_eq!(green, (lower.burst / units).min(passed));
    }
}
