//! Even spacing up to a backlog.

use std::time::Duration;

use limiter_common::time::{MAX_TICKS, Ticks};
use limiter_common::wire::{Count, Limit};
use limiter_decision::algorithm::leaky_bucket::{self, Charge};
use limiter_rules::compile::{self, Quota};
use limiter_rules::{Period, Unit};
use proptest::prelude::*;

use crate::support::{
    FRAME, Packet, Pattern, admitted, config, in_every_window, pattern, short_period, whole,
};

fn compiled(quota: Quota, backlog: u64) -> Option<Limit> {
    compile::leaky_bucket(quota, Duration::from_nanos(backlog), FRAME).ok()
}

fn run(limit: &Limit, offered: &[Packet]) -> Vec<Packet> {
    let mut tat = Ticks::ZERO;
    admitted(offered, |packet| {
        let charge = Charge::new(limit, Ticks::from_nanos(packet.at), packet.units);
        charge.apply(tat).is_some_and(|next| {
            tat = next;
            true
        })
    })
}

fn quota() -> impl Strategy<Value = Quota> {
    prop_oneof![quota_of(Count::Packets), quota_of(Count::Bytes)]
}

fn quota_of(count: Count) -> impl Strategy<Value = Quota> {
    let rate = (0u32..=8, 1u64..10).prop_map(|(exponent, digit)| digit * 10u64.pow(exponent));
    (rate, short_period())
        .prop_map(move |(requests_per_unit, period)| Quota::new(count, requests_per_unit, period))
}

/// The time of one packet, in whole nanoseconds rounded down.
fn interval(limit: &Limit) -> u64 {
    let units = match limit.counts() {
        Count::Packets | Count::Syns | Count::Flows => 1,
        Count::Bytes => 800,
    };
    limiter_decision::gcra::cost(limit, units).as_nanos().max(1)
}

/// Backlogs from none to twenty packets.
fn backlog(limit: &Limit, thousandths: u64) -> u64 {
    u64::try_from(u128::from(interval(limit)) * u128::from(thousandths) / 1000).unwrap()
}

fn offered(pattern: &Pattern, limit: &Limit) -> Vec<Packet> {
    pattern.offered(interval(limit), limit.counts())
}

fn share() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0u64), Just(999), Just(1000), Just(1001), 0u64..20_000]
}

proptest! {
    #![proptest_config(config())]

    /// In every window: all but the last packet within rate * (t + backlog).
    #[test]
    fn never_over_in_any_window(quota in quota(), share in share(), pattern in pattern()) {
        let Some(plain) = compiled(quota, 0) else { return Ok(()) };
        let backlog = backlog(&plain, share);
        let Some(limit) = compiled(quota, backlog) else { return Ok(()) };
        let holds = |window: crate::support::Window| {
            (window.sum - window.last) * u128::from(quota.period.nanos())
                <= u128::from(quota.requests_per_unit) * (window.length + u128::from(backlog))
        };
        in_every_window(&run(&limit, &offered(&pattern, &limit)), holds);
        // With late clocks, over the whole run.
        let late = pattern.with_late_clocks(interval(&limit), limit.counts());
        prop_assert!(whole(&run(&limit, &late)).is_none_or(holds));
    }

    /// Without a backlog, packets are an interval apart.
    #[test]
    fn without_a_backlog_packets_are_an_interval_apart(quota in quota(), pattern in pattern()) {
        let Some(limit) = compiled(quota, 0) else { return Ok(()) };
        for pair in run(&limit, &offered(&pattern, &limit)).windows(2) {
            let gap = u128::from(pair[1].at - pair[0].at) * u128::from(quota.requests_per_unit);
            prop_assert!(gap >= u128::from(pair[0].units) * u128::from(quota.period.nanos()));
        }
    }

    /// Packets an interval apart, each early by less than the backlog, all pass.
    #[test]
    fn conforming_source_loses_nothing(
        quota in quota(), share in share(), jitter in prop::collection::vec(0u64..=1000, 1..100),
    ) {
        let Some(plain) = compiled(quota, 0) else { return Ok(()) };
        let backlog = backlog(&plain, share);
        let Some(limit) = compiled(quota, backlog) else { return Ok(()) };
        let units = if limit.counts() == Count::Packets { 1 } else { 800 };
        // A whole number of nanoseconds, so rounded up.
        let step = interval(&limit) + 1;
        let mut slot = 1u64 << 56;
        let mut last = 0;
        let offered: Vec<_> = jitter
            .iter()
            .map(|thousandths| {
                let early = u128::from(backlog) * u128::from(*thousandths) / 1000;
                slot += step;
                // Early by up to the backlog, but in order.
                last = (slot - u64::try_from(early).unwrap()).max(last);
                Packet { at: last, units }
            })
            .collect();
        prop_assert_eq!(run(&limit, &offered).len(), offered.len());
    }

    /// An independent bucket of rational numbers agrees, packet by packet.
    #[test]
    fn agrees_with_a_fluid_bucket(
        rate in prop::sample::select(vec![1u64, 2, 5, 10, 100, 1000, 10_000, 1_000_000]),
        backlog in 0u64..3_000_000_000,
        pattern in pattern(),
    ) {
        let quota = Quota::new(Count::Packets, rate, Period::one(Unit::Second));
        let limit = compiled(quota, backlog).unwrap();
        // The level in packets times the period; it drains by `rate` each nanosecond.
        let (mut level, mut last) = (0u128, 0u64);
        let offered = offered(&pattern.away_from_the_end(), &limit);
        let expected = admitted(&offered, |packet| {
            level = level.saturating_sub(u128::from(packet.at - last) * u128::from(rate));
            last = packet.at;
            let passes = level <= u128::from(backlog) * u128::from(rate);
            if passes {
                level += 1_000_000_000;
            }
            passes
        });
        prop_assert_eq!(run(&limit, &offered), expected);
    }

    /// More rate or more backlog never admits fewer of the same packets.
    #[test]
    fn monotone(
        quota in quota_of(Count::Packets),
        share in share(), more in 2u64..10, pattern in pattern(),
    ) {
        let Some(plain) = compiled(quota, 0) else { return Ok(()) };
        let backlog = backlog(&plain, share);
        let Some(limit) = compiled(quota, backlog) else { return Ok(()) };
        let offered = offered(&pattern, &limit);
        let least = run(&limit, &offered).len();
        let faster = Quota { requests_per_unit: quota.requests_per_unit * more, ..quota };
        let others = [compiled(faster, backlog), compiled(quota, backlog * more)];
        for limit in others.into_iter().flatten() {
            prop_assert!(run(&limit, &offered).len() >= least);
        }
    }

    /// After any idle time as many at once as the backlog holds and one more, and no more.
    #[test]
    fn idle_never_overfills(
        quota in quota_of(Count::Packets), packets in 0u64..50, idle in 0u64..1 << 57,
    ) {
        let Some(plain) = compiled(quota, 0) else { return Ok(()) };
        // The backlog of exactly so many packets, rounded up to a whole nanosecond.
        let nanos = (plain.increment * packets).div_ceil(32);
        let Some(limit) = compiled(quota, nanos) else { return Ok(()) };
        let at_once = |at| vec![Packet { at, units: 1 }; 60];
        let expected = usize::try_from((limit.tolerance / limit.increment) + 1).unwrap().min(60);
        prop_assert!(expected as u64 > packets.min(59));
        let mut offered = at_once(1 << 56);
        prop_assert_eq!(run(&limit, &offered).len(), expected);
        let rest = limit.tolerance.div_ceil(32) + limit.increment.div_ceil(32);
        offered.extend(at_once((1 << 56) + rest + idle));
        prop_assert_eq!(run(&limit, &offered).len(), 2 * expected);
    }

    /// A clock that ran backwards counts as no time.
    #[test]
    fn backwards_clock_grants_nothing(quota in quota(), back in 0u64..1 << 50) {
        let Some(limit) = compiled(quota, 0) else { return Ok(()) };
        let offered = [1 << 57, (1 << 57) - back].map(|at| Packet { at, units: 1500 });
        prop_assert_eq!(run(&limit, &offered).len(), 1);
    }
}

/// The edges of a spacing, to the tick, and at the end of the clock's range.
#[test]
fn the_first_instant_that_conforms() {
    let quota = Quota::new(Count::Packets, 1000, Period::one(Unit::Second));
    let limit = compiled(quota, 0).unwrap();
    let tat = Charge::new(&limit, Ticks::from_nanos(5), 1).apply(Ticks::ZERO).unwrap();
    assert_eq!(tat, Ticks::from_nanos(1_000_005));
    assert_eq!(leaky_bucket::backlog(tat, Ticks::from_nanos(400_005)), Ticks::from_nanos(600_000));
    let at = |ticks: u64| Charge::new(&limit, Ticks::new(ticks), 1).apply(tat);
    assert_eq!(at(tat.get() - 1), None);
    assert!(at(tat.get()).is_some());
    // The last debt that fits the clock's range passes, the first that does not is refused.
    let last = MAX_TICKS - limit.increment;
    let tat = Charge::new(&limit, Ticks::new(last), 1).apply(Ticks::ZERO).unwrap();
    assert_eq!(tat.get(), MAX_TICKS);
    assert_eq!(Charge::new(&limit, Ticks::new(last + 1), 1).apply(Ticks::ZERO), None);
}
