//! The token bucket over the whole grid of rates, bursts, units and arrival patterns: promises P1,
//! P2 and P3 of the design, on limits that the rule compiler really makes.

#![expect(clippy::unwrap_used, reason = "a failed conversion is a failed test")]
#![expect(clippy::cast_precision_loss, reason = "a 1 % comparison")]

use governor::clock::FakeRelativeClock;
use governor::{Quota, RateLimiter};
use limiter_common::frame_size::FrameSize;
use limiter_common::time::{TICK_BITS, Ticks};
use limiter_common::wire::{Count, Limit};
use limiter_decision::clock;
use limiter_decision::gcra::{self, Charge};
use limiter_decision::meter::carried_tat;
use limiter_rules::compile;
use limiter_rules::{Period, RateLimit, Unit};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use std::num::NonZeroU32;
use std::time::Duration;

const FRAME: u64 = 1522;

fn compiled(rate: RateLimit) -> Option<Limit> {
    compile::limit(&rate.into(), FRAME).ok()
}

fn period() -> impl Strategy<Value = Period> {
    let multiplier = prop::sample::select(vec![1u32, 1, 2, 5, 30, 52]);
    (prop::sample::select(Unit::ALL.to_vec()), multiplier).prop_map(|(unit, multiplier)| {
        // A week at most: `run` cuts longer gaps.
        let most = Unit::Week.seconds() / unit.seconds();
        let multiplier = multiplier.min(u32::try_from(most).unwrap());
        Period { unit, multiplier }
    })
}

/// Log-uniform, so that 1 and 10^8 are equally likely.
fn magnitude(max_exponent: u32) -> impl Strategy<Value = u64> {
    (0..=max_exponent, 1u64..10).prop_map(|(exponent, digit)| digit * 10u64.pow(exponent))
}

fn packets() -> impl Strategy<Value = RateLimit> {
    (magnitude(8), period(), magnitude(5)).prop_map(|(requests_per_unit, period, burst)| {
        limiter_rules::model::Quota::new(Count::Packets, requests_per_unit, period)
            .with_burst(burst)
    })
}

/// Bursts that can be sent packet by packet.
fn small_packets() -> impl Strategy<Value = RateLimit> {
    (packets(), 1u64..1000).prop_map(|(rate, burst)| RateLimit { burst, ..rate })
}

fn bytes() -> impl Strategy<Value = RateLimit> {
    (magnitude(10), period(), magnitude(8)).prop_map(|(requests_per_unit, period, burst)| {
        limiter_rules::model::Quota::new(Count::Bytes, requests_per_unit, period)
            .with_burst(burst + FRAME)
    })
}

/// Gaps in multiples of the limit's own interval, so that every regime occurs: back to back, just
/// under, just over, long idle.
fn gaps() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec(
        (prop::sample::select(vec![0, 1, 900, 999, 1000, 1001, 1100, 2500, 100_000]), 60u64..1515),
        1..120,
    )
}

struct Run {
    /// (time, units) of every admitted packet.
    admitted: Vec<(Ticks, u64)>,
    dropped: usize,
}

fn run(limit: &Limit, start: Ticks, gaps: &[(u64, u64)]) -> Run {
    let mut now = start;
    let mut tat = Ticks::ZERO;
    let mut run = Run { admitted: Vec::new(), dropped: 0 };
    let interval = limit.increment >> limit.shift;
    for (thousandths, length) in gaps {
        let units = limit.units(FrameSize::of_packet(*length));
        let step = u128::from(interval) * u128::from(units) * u128::from(*thousandths) / 1000;
        now = now.plus(Ticks::new(u64::try_from(step.min(1 << 55)).unwrap()));
        match Charge::new(limit, now, units).apply(tat) {
            Some(next) => {
                tat = next;
                run.admitted.push((now, units));
            }
            None => run.dropped += 1,
        }
    }
    run
}

/// In every window: admitted <= burst + rate * t, with rational arithmetic and no tolerance (bytes:
/// rounded up to a whole byte).
fn assert_bound(rate: &RateLimit, run: &Run) {
    let period = u128::from(rate.period.nanos()) << TICK_BITS;
    for (i, (start, _)) in run.admitted.iter().enumerate() {
        let mut sum = 0u128;
        for (end, units) in &run.admitted[i..] {
            sum += u128::from(*units);
            let length = u128::from(end.since(*start).get());
            let over = sum.saturating_sub(u128::from(rate.burst));
            let over = match rate.count {
                Count::Packets | Count::Syns | Count::Flows => over,
                Count::Bytes => over.saturating_sub(1),
            };
            assert!(
                over * period <= u128::from(rate.requests_per_unit) * length,
                "{sum} admitted in {length} ticks under {rate:?}"
            );
        }
    }
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 2000,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    /// A packet that is dropped by an old reading of the clock would be dropped by a new one.
    #[test]
    fn an_old_reading_drops_nothing_that_conforms(
        rate in prop_oneof![packets(), bytes()],
        start in 0u64..1 << 60,
        owed in 0u64..1 << 40,
        age in 0..=clock::SLACK.get(),
        length in 60u64..1515,
    ) {
        if let Some(limit) = compiled(rate) {
            let (recent, units) = (Ticks::new(start), limit.units(FrameSize::of_packet(length)));
            // Around the border, and anywhere.
            for tat in [start + limit.tolerance + owed % (4 * clock::SLACK.get()), start + owed] {
                let tat = Ticks::new(tat);
                let later = Charge::new(&limit, recent.plus(clock::SLACK), units);
                if later.is_over_until_now(tat) {
                    let charge = later.at(&limit, recent.plus(Ticks::new(age)), false);
                    prop_assert_eq!(charge.apply(tat), None);
                }
            }
        }
    }

    #[test]
    fn never_over_in_any_window_packets(rate in packets(), start in 0u64..1 << 60, gaps in gaps()) {
        if let Some(limit) = compiled(rate) {
            assert_bound(&rate, &run(&limit, Ticks::new(start), &gaps));
        }
    }

    /// P1 for bytes.
    #[test]
    fn never_over_in_any_window_bytes(rate in bytes(), start in 0u64..1 << 60, gaps in gaps()) {
        if let Some(limit) = compiled(rate) {
            assert_bound(&rate, &run(&limit, Ticks::new(start), &gaps));
        }
    }

    /// P2: anybody who sends no faster than the effective rate loses nothing, and neither does the
    /// first burst.
    #[test]
    fn conforming_source_loses_nothing(rate in packets(), count in 1usize..200) {
        if let Some(limit) = compiled(rate) {
            let paced = vec![(1000, 60); count];
            prop_assert_eq!(run(&limit, Ticks::new(1 << 40), &paced).dropped, 0);
            let at_once = vec![(0, 60); count.min(usize::try_from(rate.burst).unwrap())];
            prop_assert_eq!(run(&limit, Ticks::new(1 << 40), &at_once).dropped, 0);
        }
    }

    /// A byte burst passes whole, and not one frame more. Every frame's cost is rounded up by less
    /// than a tick, and the slack for that stays under a byte; so a burst of more frames than a
    /// byte has ticks may lose its end: at most a tick a frame of it.
    #[test]
    fn byte_burst_is_the_burst(rate in bytes(), length in 60u64..1515) {
        if let Some(limit) = compiled(rate) {
            let fits = usize::try_from(rate.burst / length).unwrap();
            prop_assume!(fits < 5000);
            let run = run(&limit, Ticks::new(1 << 40), &vec![(0, length); fits + 1]);
            let cost = usize::try_from(gcra::cost(&limit, length).get()).unwrap();
            let ticks_per_byte = usize::try_from(limit.increment >> limit.shift).unwrap();
            let lost = if fits < ticks_per_byte { 0 } else { fits.div_ceil(cost) };
            prop_assert!((fits - lost..=fits).contains(&run.admitted.len()));
        }
    }

    /// P3: the effective rate is the configured one within 1 %, and never above.
    #[test]
    fn effective_rate_within_one_percent(rate in prop_oneof![packets(), bytes()]) {
        if let Some(limit) = compiled(rate) {
            let configured = rate.requests_per_unit as f64 / rate.period.seconds() as f64;
            let units = limit.units(FrameSize::of_packet(60));
            let per_frame = gcra::cost(&limit, units).get() as f64 / f64::from(1 << TICK_BITS) / 1e9;
            let effective = units as f64 / per_frame;
            prop_assert!(effective <= configured * (1.0 + 1e-12), "{effective} > {configured}");
            prop_assert!(effective >= configured * 0.99, "{effective} < {configured}");
        }
    }

    /// More rate or more burst never admits fewer packets of the same arrivals.
    #[test]
    fn monotone(rate in packets(), more in 2u64..10, gaps in gaps()) {
        let faster = RateLimit { requests_per_unit: rate.requests_per_unit * more, ..rate };
        let larger = RateLimit { burst: rate.burst * more, ..rate };
        let base = compiled(rate);
        if let Some(base) = base {
            // All three get equal absolute arrivals.
            let interval = base.increment;
            let count = |limit: &Limit| {
                let (mut now, mut tat, mut admitted) = (Ticks::new(1 << 40), Ticks::ZERO, 0);
                for (thousandths, _) in &gaps {
                    let step = u128::from(interval) * u128::from(*thousandths) / 1000;
                    now = now.plus(Ticks::new(u64::try_from(step.min(1 << 55)).unwrap()));
                    if let Some(next) = Charge::new(limit, now, 1).apply(tat) {
                        tat = next;
                        admitted += 1;
                    }
                }
                admitted
            };
            let least = count(&base);
            for other in [faster, larger] {
                if let Some(limit) = compiled(other) {
                    prop_assert!(count(&limit) >= least);
                }
            }
        }
    }

    /// An independent implementation agrees, packet by packet, where its nanosecond grain is exact.
    #[test]
    fn agrees_with_governor(
        interval in prop::sample::select(vec![1u32, 2, 5, 10, 100, 1000, 10_000, 1_000_000]),
        burst in 1u32..50,
        gaps in prop::collection::vec(0u64..3_000_000_000, 1..100),
    ) {
        let rate = limiter_rules::model::Quota::new(Count::Packets, u64::from(interval), Period::one(Unit::Second)).with_burst(u64::from(burst));
        let limit = compiled(rate).unwrap();
        let clock = FakeRelativeClock::default();
        let quota = Quota::per_second(NonZeroU32::new(interval).unwrap())
            .allow_burst(NonZeroU32::new(burst).unwrap());
        let oracle = RateLimiter::direct_with_clock(quota, clock.clone());
        let (mut now, mut tat) = (1u64 << 40, Ticks::ZERO);
        for gap in gaps {
            let gap = gap / u64::from(interval);
            clock.advance(Duration::from_nanos(gap));
            now += gap;
            let ours = Charge::new(&limit, Ticks::from_nanos(now), 1).apply(tat);
            prop_assert_eq!(ours.is_some(), oracle.check().is_ok());
            tat = ours.unwrap_or(tat);
        }
    }

    /// However long the idle time, no more than the burst is there afterwards.
    #[test]
    fn idle_never_overfills(rate in small_packets(), idle in 0u64..1 << 60) {
        if let Some(limit) = compiled(rate) {
            let mut frames = vec![(0, 60); 3];
            let before = run(&limit, Ticks::new(1000), &frames);
            prop_assert!(before.admitted.len() <= 3);
            frames = vec![(0, 60); usize::try_from(rate.burst).unwrap() + 5];
            let after = run(&limit, Ticks::new(1000 + idle), &frames);
            prop_assert_eq!(after.admitted.len() as u64, rate.burst);
        }
    }

    /// A clock that ran backwards counts as no time.
    #[test]
    fn backwards_clock_grants_nothing(rate in small_packets(), back in 0u64..1 << 50) {
        if let Some(limit) = compiled(rate) {
            let now = Ticks::new(1 << 60);
            let mut tat = Ticks::ZERO;
            for _ in 0..rate.burst {
                tat = Charge::new(&limit, now, 1).apply(tat).expect("within the burst");
            }
            let earlier = Ticks::new((1 << 60) - back);
            prop_assert!(Charge::new(&limit, earlier, 1).apply(tat).is_none());
        }
    }

    /// `remaining` is what really passes.
    #[test]
    fn remaining_is_what_passes(rate in small_packets(), sent in 0u64..200, wait in 0u64..1 << 40) {
        if let Some(limit) = compiled(rate) {
            let mut now = Ticks::new(1 << 60);
            let mut tat = Ticks::ZERO;
            for _ in 0..sent {
                tat = Charge::new(&limit, now, 1).apply(tat).unwrap_or(tat);
            }
            now = now.plus(Ticks::new(wait));
            let remaining = gcra::remaining(&limit, tat, now);
            let mut passed = 0;
            while let Some(next) = Charge::new(&limit, now, 1).apply(tat) {
                tat = next;
                passed += 1;
                prop_assert!(passed <= rate.burst, "{passed} of {rate:?} passed at once");
            }
            prop_assert_eq!(remaining, passed);
        }
    }

    /// A changed limit never refills: what was available is available, as far as the new burst
    /// goes.
    #[test]
    fn change_grants_no_more_than_the_larger(
        old in small_packets(), new in small_packets(), share in 0u64..=1000,
    ) {
        if let (Some(a), Some(b)) = (compiled(old), compiled(new)) {
            let now = Ticks::new(1 << 60);
            let mut tat = Ticks::ZERO;
            let used = old.burst * share / 1000;
            for _ in 0..used {
                tat = Charge::new(&a, now, 1).apply(tat).expect("within the burst");
            }
            let carried = carried_tat((&a, &b), tat, now);
            let left = gcra::remaining(&b, carried, now);
            prop_assert!(used + left <= old.burst.max(new.burst), "{used} + {left}");
            prop_assert_eq!(left, new.burst.min(old.burst - used));
            // A raise of a rule that was never cut gives the difference; of another rule, nothing.
            if new.burst >= old.burst {
                let [a, b] = [a, b].map(|limit| limit.with_largest(true));
                let raised = carried_tat((&a, &b), tat, now);
                prop_assert_eq!(gcra::remaining(&b, raised, now), new.burst - used);
                let other = Limit { rule: b.rule + 1, ..b };
                prop_assert_eq!(carried_tat((&a, &other), tat, now), carried);
            }
        }
    }

    /// Byte limits keep the share, too, as do changes from one kind to the other.
    #[test]
    fn change_of_kind_keeps_the_share(old in bytes(), new in small_packets(), share in 0u64..=100) {
        if let (Some(a), Some(b)) = (compiled(old), compiled(new)) {
            let now = Ticks::new(1 << 60);
            let owed = u128::from(a.tolerance) * u128::from(share) / 100;
            let tat = now.plus(Ticks::new(u64::try_from(owed).unwrap()));
            let left = gcra::remaining(&b, carried_tat((&a, &b), tat, now), now);
            let fair = new.burst * (100 - share) / 100;
            prop_assert!(left.abs_diff(fair) <= 1 + new.burst / 100, "{left} left, {fair} expected");
        }
    }
}

/// From 5 a day to 100 Mpps and 1 kbit/s to 100 Gbit/s: accepted, and past that refused.
#[test]
fn the_promised_range_is_accepted() {
    let packets = |requests_per_unit, unit| {
        limiter_rules::model::Quota::new(Count::Packets, requests_per_unit, Period::one(unit))
            .with_burst(1)
    };
    let bytes = |bits: u64| {
        limiter_rules::model::Quota::new(Count::Bytes, bits / 8, Period::one(Unit::Second))
            .with_burst(FRAME)
    };
    let year = Period { unit: Unit::Day, multiplier: 366 };
    for rate in [
        RateLimit { period: year, ..packets(1, Unit::Day) },
        packets(1, Unit::Week),
        packets(5, Unit::Day),
        packets(100_000_000, Unit::Second),
        bytes(1_000),
        bytes(100_000_000_000),
    ] {
        assert!(compiled(rate).is_some(), "{rate:?}");
    }
    for rate in [packets(321_000_000, Unit::Second), bytes(160_000_000_000), packets(0, Unit::Day)]
    {
        assert!(compiled(rate).is_none(), "{rate:?}");
    }
}
