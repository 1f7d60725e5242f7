//! Limits that change, from every algorithm to every algorithm: what was used stays used where both
//! count in the same windows, and of a rate that is raised; elsewhere what is available stays
//! available.

use std::sync::atomic::Ordering;

use limiter_common::time::Ticks;
use limiter_common::window::{LogLimit, WallOffset};
use limiter_common::wire::{Algorithm, Count, LimitSpec, Role};
use limiter_decision::meter::{Carried, Peek, Seed, Share};
use limiter_rules::compile::{self, Quota, SlotError};
use limiter_rules::{Period, Unit};
use proptest::prelude::*;

use crate::metered::{
    ALGORITHMS, Metered, alike, capacity, in_bound, in_one_measure, in_units, last_frame, measure,
    offset, packet_spec, parts, renewal, scale_of, spec,
};
use crate::support::{END, FRAME, Packet, config, pattern};

/// The most of a limit that passed and cannot have come back: over all times from one end of the
/// packets, which are in the order of distance from the change at `change`.
fn net(spec: &LimitSpec, packets: impl Iterator<Item = Packet>, change: u64) -> u128 {
    let mut sum = 0;
    packets
        .map(|packet| {
            sum += measure(spec, packet.units);
            sum.saturating_sub(renewal(spec, packet.at.abs_diff(change)))
        })
        .max()
        .unwrap_or_default()
}

/// True if what was used of one limit can be said of the other: counts of the same windows.
fn count_alike(old: &LimitSpec, new: &LimitSpec) -> bool {
    let window = |spec: &LimitSpec| match spec.algorithm() {
        Algorithm::SlidingLog => (spec.log().window, 0),
        _ => (spec.window().width, spec.window().slots),
    };
    old.counts() == new.counts()
        && !old.is_rate()
        && old.algorithm() == new.algorithm()
        && window(old) == window(new)
}

/// The larger of two limits of a rate, both marked as the largest of their rule so far.
fn raised((one, other): (LimitSpec, LimitSpec)) -> (LimitSpec, LimitSpec) {
    let [one, other] = [one, other].map(|spec| spec.with_largest(true));
    let units = |spec: &LimitSpec| in_units(spec, capacity(spec));
    if units(&one) <= units(&other) { (one, other) } else { (other, one) }
}

/// One run under a limit, a change, and one under another: what passed before and after.
struct Change {
    before: Vec<Packet>,
    at: u64,
    /// Share of the limit before that was used.
    share: Share,
    /// Units of the limit after that are used.
    used: u64,
    after: Vec<Packet>,
}

fn run(
    (old, new): (&LimitSpec, &LimitSpec),
    offset: WallOffset,
    before: &[Packet],
    wait: u64,
    after: &[Packet],
) -> Change {
    let meter = Metered::new(old, false, offset);
    let passed = before.iter().copied().filter(|packet| meter.passes(old, *packet)).collect();
    let at = before.last().map_or(0, |packet| packet.at).saturating_add(wait).min(END);
    let share = meter.used(old, at);
    let used = meter.carries(old, new, at).used;
    let meter = meter.carried(old, new, at);
    // As far apart as they are by themselves.
    let start = after.first().map_or(0, |packet| packet.at);
    let later = after
        .iter()
        .map(|packet| Packet { at: (at + (packet.at - start)).min(END), ..*packet })
        .filter(|packet| meter.passes(new, *packet))
        .collect();
    Change { before: passed, at, share, used, after: later }
}

/// Packets that passed before a change and did not come back, and those that passed after it before
/// anything comes back; and the larger capacity, with what rounding adds.
fn around(old: &LimitSpec, new: &LimitSpec, change: &Change) -> (u128, u128) {
    let p = net(old, change.before.iter().rev().copied(), change.at);
    let q = net(new, change.after.iter().copied(), change.at);
    // The last frame of a leaky bucket, once on its side.
    let p = p.saturating_sub(last_frame(old));
    let q = q.saturating_sub(last_frame(new));
    let most = in_units(old, capacity(old)).max(in_units(new, capacity(new)));
    // A frame's cost is rounded up to a tick, and so its measure here.
    let rounding = |spec: &LimitSpec, packets: &[Packet]| {
        if spec.is_rate() { in_units(spec, packets.len() as u128 + 1) } else { 0 }
    };
    let slack = rounding(old, &change.before) + rounding(new, &change.after) + 2;
    (in_units(old, p) + in_units(new, q), most + slack)
}

proptest! {
    #![proptest_config(config())]

    /// Packets that passed before and did not come back, and those that pass after before anything
    /// comes back, are no more than the larger capacity, for all times before and after the change.
    #[test]
    fn what_is_available_stays_available(
        (old, new) in prop_oneof![alike(), in_one_measure()], offset in offset(),
        before in pattern(), after in pattern(), wait in prop_oneof![Just(0u64), 0u64..2000],
    ) {
        let wait = u64::try_from(u128::from(scale_of(&old)) * u128::from(wait) / 1000).unwrap();
        let before = before.away_from_the_end().offered(scale_of(&old), old.counts());
        let after = after.away_from_the_end().offered(scale_of(&new), new.counts());
        let change = run((&old, &new), offset, &before, wait, &after);
        let (units, most) = around(&old, &new, &change);
        prop_assert!(units <= most, "{} of {} >> 20", units, most);
        if count_alike(&old, &new) {
            return Ok(());
        }
        prop_assert!(in_bound(&new, &change.after));
        // The rest is what was there, or all that the new limit has.
        let rest = |spec: &LimitSpec, used: u64| {
            let whole = match spec.algorithm() {
                Algorithm::SlidingCounter => spec.window().limit.into(),
                _ => capacity(spec),
            };
            match spec.algorithm() {
                Algorithm::SlidingCounter => (whole - u128::from(used)) << 20,
                _ => in_units(spec, whole - u128::from(used)),
            }
        };
        let left = (u128::from(u32::MAX) + 1).saturating_sub(change.share.raw().into());
        let available = in_units(&old, capacity(&old)) * left / (1 << 32);
        let expected = available.min(in_units(&new, capacity(&new)));
        let found = rest(&new, change.used);
        // A share is rounded up to 2^-32, a count to a unit, a time to a tick.
        let unit = match new.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => in_units(&new, 2) + 2,
            _ => 1 << 20,
        };
        let counted = if old.algorithm() == Algorithm::SlidingCounter { 1 << 20 } else { 0 };
        let exact = in_units(&old, capacity(&old) >> 32) + in_units(&old, 1) + unit + counted + 2;
        prop_assert!(found.abs_diff(expected) <= exact, "{} for {} >> 20", found, expected);
    }

    /// (p - R) / C + (q - R') / C' <= 1, for all times before and after a change to another unit.
    #[test]
    fn of_another_unit_the_used_share_stays_used(
        old in spec(), new in spec(), offset in offset(),
        before in pattern(), after in pattern(), wait in prop_oneof![Just(0u64), 0u64..2000],
    ) {
        if old.counts() == new.counts() {
            return Ok(());
        }
        let wait = u64::try_from(u128::from(scale_of(&old)) * u128::from(wait) / 1000).unwrap();
        let before = before.away_from_the_end().offered(scale_of(&old), old.counts());
        let after = after.away_from_the_end().offered(scale_of(&new), new.counts());
        let change = run((&old, &new), offset, &before, wait, &after);
        let p = net(&old, change.before.iter().rev().copied(), change.at);
        let q = net(&new, change.after.iter().copied(), change.at);
        // The last frame of a leaky bucket, once on its side.
        let p = p.saturating_sub(last_frame(&old));
        let q = q.saturating_sub(last_frame(&new));
        let (c, d) = (capacity(&old), capacity(&new));
        // By halves, because the products of two counters pass 128 bits.
        let one = 1u128 << 48;
        let shares = (p * one).div_ceil(c) + (q * one).div_ceil(d);
        prop_assert!(shares <= one + (one >> 32) + 2, "{p} of {c}, {q} of {d}");
        // By itself: no more than the rest is there at the change, and the new bound later on.
        let rest = (1u128 << 32) - u128::from(change.share.raw());
        let slack = (d >> 32) + 1;
        prop_assert!(q <= d * rest / (1 << 32) + slack, "{q} of {d} at {:?}", change.share);
        prop_assert!(in_bound(&new, &change.after));
    }

    /// If both count alike, never more than the larger of both, to the packet: at one instant
    /// from a fresh start, as many as are taken of the old limit and then all of the new one.
    #[test]
    fn never_more_than_the_larger(
        old in packet_spec(), new in packet_spec(), offset in offset(),
        at in 1u64 << 50..1 << 57, taken in 0usize..45,
    ) {
        let at_once = |spec: &LimitSpec| {
            let meter = Metered::new(spec, false, offset);
            (0..100).take_while(|_| meter.passes(spec, Packet { at, units: 1 })).count()
        };
        let packets = vec![Packet { at, units: 1 }; 60];
        let taken = taken.min(at_once(&old));
        let change = run((&old, &new), offset, &packets[..taken.max(1)], 0, &packets);
        prop_assert_eq!(change.before.len(), taken.max(1));
        let (p, q) = (change.before.len(), change.after.len());
        prop_assert!(p + q <= at_once(&old).max(at_once(&new)), "{p} + {q}");
    }

    /// An untouched or drained limit becomes an untouched one if that is no larger; a used-up one
    /// becomes one that is over at once.
    #[test]
    fn nothing_stays_nothing_and_all_stays_all(
        (old, new) in alike(), offset in offset(), pattern in pattern(),
    ) {
        let meter = Metered::new(&old, false, offset);
        prop_assert_eq!(meter.used(&old, 1 << 40), Share::NOTHING);
        let mut last = 0;
        for packet in pattern.away_from_the_end().offered(scale_of(&old), old.counts()) {
            last = packet.at;
            meter.passes(&old, packet);
            if meter.used(&old, packet.at) == Share::ALL {
                let next = meter.carried(&old, &new, packet.at);
                if count_alike(&old, &new) && in_units(&old, capacity(&old)) < in_units(&new, capacity(&new)) {
                    // The difference.
                    continue;
                }
                prop_assert_eq!(next.peek(&new, Packet { units: 1, ..packet }), Peek::Over);
            }
        }
        // A leaky bucket may owe its backlog and a frame; nothing owes more than two of its times.
        let drained = last.saturating_add(2 * scale_of(&old) + (1 << 55)).min(END);
        if last + 2 * scale_of(&old) >= drained {
            return Ok(());
        }
        let whole = |spec: &LimitSpec| in_units(spec, capacity(spec));
        // A part of a tick of the one is a part of a unit of the other.
        if whole(&old) < whole(&new) + 4 {
            return Ok(());
        }
        let next = meter.carried(&old, &new, drained);
        if count_alike(&old, &new) {
            prop_assert_eq!(next.used(&new, drained), Share::NOTHING);
            return Ok(());
        }
        let fresh = Metered::new(&new, true, offset);
        prop_assert_eq!(next.raw(), fresh.raw());
    }

    /// Whatever passes no packet at once and was fresh before is used up; so it is after the
    /// change.
    #[test]
    fn an_exhausted_limit_is_exhausted_after_the_change(
        old in packet_spec(), new in packet_spec(), offset in offset(), at in 1u64..1 << 56,
    ) {
        let meter = Metered::new(&old, false, offset);
        let packet = Packet { at, units: 1 };
        meter.exhaust(&old, packet);
        prop_assert_eq!(meter.used(&old, at), Share::ALL);
        let larger = in_units(&old, capacity(&old)) < in_units(&new, capacity(&new));
        let passes = meter.carried(&old, &new, at).passes(&new, packet);
        prop_assert!(!passes || count_alike(&old, &new) && larger);
    }

    /// A rate that is raised, and was never cut, owes what it owed: what passed before the change,
    /// after what comes back, and what passes after it are no more than the larger capacity, and
    /// the difference is there at once.
    #[test]
    fn a_raised_rate_owes_what_it_owed(
        (old, new) in prop_oneof![alike(), in_one_measure()]
            .prop_filter("rates", |(old, new)| old.is_rate() && new.is_rate())
            .prop_map(raised),
        offset in offset(),
        before in pattern(), after in pattern(), wait in prop_oneof![Just(0u64), 0u64..2000],
    ) {
        let wait = u64::try_from(u128::from(scale_of(&old)) * u128::from(wait) / 1000).unwrap();
        let before = before.away_from_the_end().offered(scale_of(&old), old.counts());
        let after = after.away_from_the_end().offered(scale_of(&new), new.counts());
        let change = run((&old, &new), offset, &before, wait, &after);
        let (units, most) = around(&old, &new, &change);
        prop_assert!(units <= most, "{} of {} >> 20", units, most);
        prop_assert!(in_bound(&new, &change.after));
        // No more is used of the new one than of the old one.
        let meter = Metered::new(&old, false, offset);
        for packet in &before {
            meter.passes(&old, *packet);
        }
        let had = in_units(&old, meter.used_at(&old, change.at).into());
        let has = in_units(&new, change.used.into());
        let most = in_units(&new, capacity(&new));
        let rounding = in_units(&old, (capacity(&old) >> 32) + 2) + in_units(&new, 3) + 2;
        prop_assert!(has + 2 >= had.min(most) && has <= had + rounding, "{} of {} >> 20", has, had);
    }

    /// A limit in windows that is raised gives the difference, and one that is cut and raised again
    /// is as it was, whatever it was cut to. A rate gives the difference if it was never cut, and
    /// no burst if it was.
    #[test]
    fn a_raise_gives_the_difference_and_a_cut_none_back(
        parts in parts(Some(Count::Packets)), offset in offset(),
        at in 1u64 << 50..1 << 56, taken in 0usize..45,
    ) {
        let at_once = |meter: &Metered, spec: &LimitSpec| {
            (0..10_000).take_while(|_| meter.passes(spec, Packet { at, units: 1 })).count()
        };
        let window = |spec: &LimitSpec| (spec.window().width, spec.log().window);
        for algorithm in ALGORITHMS {
            let [few, many] = [parts.spec(algorithm), parts.more().spec(algorithm)];
            // A burst is as long as the packets take.
            prop_assert!(few.is_rate() || window(&few) == window(&many));
            let whole = |spec: &LimitSpec| at_once(&Metered::new(spec, false, offset), spec);
            let (small, large) = (whole(&few), whole(&many));
            let meter = Metered::new(&many, false, offset);
            for _ in 0..taken.min(large) {
                meter.passes(&many, Packet { at, units: 1 });
            }
            let taken = taken.min(large);
            let cut = meter.carried(&many, &few, at);
            let back = cut.carried(&few, &many, at);
            let left = large - taken;
            let [of_few, of_many] = if few.is_rate() {
                [small.min(left); 2]
            } else {
                [small.saturating_sub(taken), left]
            };
            prop_assert_eq!(at_once(&cut, &few), of_few, "{:?}", algorithm);
            prop_assert_eq!(at_once(&back, &many), of_many, "{:?}", algorithm);
            let [few, many] = [few, many].map(|spec| spec.with_largest(true));
            let meter = Metered::new(&few, false, offset);
            at_once(&meter, &few);
            let raised = meter.carried(&few, &many, at);
            let (found, difference) = (at_once(&raised, &many), large.saturating_sub(small));
            // A leaky bucket is used up once a packet would be over its backlog, a part of one or
            // not.
            let part = usize::from(algorithm == Algorithm::LeakyBucket);
            prop_assert!(
                found <= difference && found + part >= difference,
                "{:?}: {} of {}", algorithm, found, difference
            );
        }
    }

    /// Changes do not add up: what is used of a count comes back as the same count, however
    /// often the limit changes.
    #[test]
    fn rounding_does_not_add_up(
        parts in parts(Some(Count::Packets)), offset in offset(), at in 1u64..1 << 56, taken in 1usize..40,
    ) {
        for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingLog, Algorithm::SlidingSlots] {
            let spec = parts.spec(algorithm);
            let mut meter = Metered::new(&spec, false, offset);
            let packet = Packet { at, units: 1 };
            for _ in 0..taken {
                meter.passes(&spec, packet);
            }
            let rest = |meter: &Metered| {
                (0..100).take_while(|_| meter.passes(&spec, packet)).count()
            };
            let used = meter.used(&spec, at);
            for _ in 0..5 {
                meter = meter.carried(&spec, &spec, at);
                prop_assert_eq!(meter.used(&spec, at), used);
            }
            let whole = rest(&Metered::new(&spec, false, offset));
            prop_assert_eq!(rest(&meter), whole.saturating_sub(taken));
        }
    }

    /// The share of everything there is, to 2^-32: against rational arithmetic, for states in the
    /// middle of a window.
    #[test]
    fn the_share_is_what_is_used(
        parts in parts(None), at in 1u64 << 50..1 << 56, taken in 1usize..20, units in 60u64..1515,
    ) {
        for algorithm in ALGORITHMS {
            let spec = parts.spec(algorithm);
            let meter = Metered::new(&spec, false, WallOffset::BOOT);
            let packet = Packet { at, units };
            let passed = (0..taken).filter(|_| meter.passes(&spec, packet)).count();
            let charged = measure(&spec, units) * passed as u128;
            let over = spec.algorithm() == Algorithm::LeakyBucket
                && charged > u128::from(spec.rate().tolerance);
            let share = u128::from(meter.used(&spec, at).raw());
            let exact = (charged << 32).div_ceil(capacity(&spec)).min(1 << 32);
            prop_assert_eq!(share, if over { 1 << 32 } else { exact }, "{:?}", algorithm);
        }
    }
}

/// The words of a log that is half used: the free entries first, so that the others free up
/// together.
#[test]
fn a_seeded_log_frees_up_together() {
    let limit = LogLimit { window: 1000, size: 4, ..Default::default() };
    let spec = LimitSpec::of_log(&limit, Count::Packets, Role::Hard);
    for used in 0..=4usize {
        let empty = Metered::new(&spec, true, WallOffset::BOOT);
        let meter = empty.seeded(&spec, Carried { used: used as u64, at: Ticks::from_nanos(5000) });
        let at = |at| (0..6).filter(|_| meter.passes(&spec, Packet { at, units: 1 })).count();
        assert_eq!(at(5000), 4 - used);
        assert_eq!(at(5999), 0);
        assert_eq!(at(6000), 4);
        assert_eq!(at(6999), 0);
        assert_eq!(at(7000), 4);
    }
}

/// Two CPUs on both sides of a border convert one limit, word by word, in every order: while each
/// stores first what is not zero, the share is there once or twice.
#[test]
fn a_mixture_of_two_conversions_keeps_the_share() {
    let quota = Quota::new(Count::Packets, 8, Period::one(Unit::Second));
    let counter = compile::sliding_counter(quota, FRAME).unwrap();
    let slots = compile::sliding_slots(quota, 2, SlotError::Lenient, FRAME).unwrap();
    for (algorithm, limit) in
        [(Algorithm::SlidingCounter, counter), (Algorithm::SlidingSlots, slots)]
    {
        let spec = LimitSpec::of_window(algorithm, &limit, Role::Hard);
        let border = 7 * limit.width;
        let half = Share::from_raw(1 << 31);
        let seeds = [border - 1, border]
            .map(|at| Carried { used: 4, at: Ticks::from_nanos(at) })
            .map(|carried| Seed::new(&spec, carried, WallOffset::BOOT));
        assert_ne!(seeds[0].first(), seeds[1].first());
        // Orders of the steps of two CPUs.
        for order in
            [[0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 1, 0], [1, 0, 0, 1], [1, 0, 1, 0], [1, 1, 0, 0]]
        {
            let meter = Metered::new(&spec, false, WallOffset::BOOT);
            let mut steps = [0; 2];
            for cpu in order {
                let seed = seeds[cpu];
                let index = if steps[cpu] == 0 { seed.first() } else { 1 - seed.first() };
                steps[cpu] += 1;
                let new = seed.word(index) << 1 | 1;
                let word = &meter.words[usize::try_from(index).unwrap()];
                // The second CPU finds the word converted.
                let _ = word.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed);
            }
            let used = meter.used(&spec, border);
            assert!(used == half || used == Share::ALL, "{used:?} after {order:?}");
        }
    }
}
