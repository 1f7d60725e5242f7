//! The short way of a plain token bucket is the long one.

use std::sync::atomic::{AtomicU64, Ordering};

use limiter_common::frame_size::FrameSize;
use limiter_common::time::Ticks;
use limiter_common::window::WallOffset;
use limiter_common::wire::{Algorithm, Count, Limit, LimitSpec, Record, Role};
use limiter_decision::meter::plain::{attempt, peek};
use limiter_decision::meter::{self, Arrival, Charged, Undo};

/// The next of a sequence without an order (Steele, Lea, Flood 2014).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[test]
fn it_is_what_the_long_way_makes_of_it() {
    let mut random = 7;
    let mut outcomes = [0_u32; 3];
    for _ in 0..20_000 {
        let tolerance = next(&mut random) >> 40;
        let limit = Limit { increment: next(&mut random) >> 44, tolerance, ..Limit::default() };
        let spec = LimitSpec::of_rate(Algorithm::TokenBucket, &limit, Role::Hard);
        let place = (random & 1) as u8;
        let spec = spec.at(place);
        assert!(spec.is_plain(place) && !spec.is_plain(1 - place));
        let now = 1 << 40;
        let tat = now + (next(&mut random) >> 39) - (1 << 24);
        let (was, scale) = (next(&mut random) & 1, next(&mut random) & 7 != 0);
        let word = tat << 1 | if scale { 1 } else { was };
        let (now, offset, units) = (Ticks::new(now), WallOffset::BOOT, 1 + was);
        let arrival = Arrival { now, offset, units, is_super_frame: false };
        let (alone, all) = (AtomicU64::new(word), [AtomicU64::new(word), AtomicU64::new(word)]);
        let peeked = peek(&spec, &&alone, true, &arrival);
        assert_eq!(peeked, meter::peek(&spec, &&all, true, &arrival));
        outcomes[peeked as usize] += 1;
        let mut short = Undo { index: place.into(), ..Undo::default() };
        let mut long = Undo::default();
        let charged = attempt(&spec, &&alone, true, &arrival, &mut short);
        assert_eq!(charged, meter::attempt(&spec, &&all, true, &arrival, &mut long));
        if charged == Charged::Conforming {
            assert_eq!(short, long);
        }
        let of_all = all[usize::from(place)].load(Ordering::Relaxed);
        assert_eq!(alone.load(Ordering::Relaxed), of_all);
    }
    assert!(outcomes.iter().all(|count| *count > 500), "{outcomes:?}");
}

#[test]
fn others_go_the_long_way() {
    let limit = Limit::default();
    let syns = Limit { count: Count::Syns as u8, ..limit };
    for spec in [
        LimitSpec::of_rate(Algorithm::LeakyBucket, &limit, Role::Hard),
        LimitSpec::of_rate(Algorithm::TokenBucket, &limit, Role::Soft),
        LimitSpec::of_rate(Algorithm::TokenBucket, &syns, Role::Hard),
        LimitSpec::of_rate(Algorithm::TokenBucket, &limit, Role::Hard).at(1),
    ] {
        assert!(!spec.is_plain(0));
    }
}

#[test]
fn bytes_and_packets_are_counted() {
    for (count, units) in [(Count::Packets, 1), (Count::Bytes, 1_514)] {
        let limit = Limit { count: count as u8, ..Limit::default() };
        let spec = LimitSpec::of_rate(Algorithm::TokenBucket, &limit, Role::Hard);
        assert!(spec.is_plain(0));
        assert_eq!(spec.plain_units(FrameSize::of_packet(1_514)), units);
    }
}

#[test]
fn one_or_two_plain_limits_are_a_plain_record() {
    let plain =
        |place| LimitSpec::of_rate(Algorithm::TokenBucket, &Limit::default(), Role::Hard).at(place);
    let soft = LimitSpec::of_rate(Algorithm::TokenBucket, &Limit::default(), Role::Soft).at(1);
    let of = |limits: &[LimitSpec]| {
        let mut record =
            Record { count: u8::try_from(limits.len()).unwrap_or(u8::MAX), ..Record::default() };
        record.limits[..limits.len()].copy_from_slice(limits);
        record
    };
    assert!(matches!(of(&[plain(0)]).plain(), Some((_, None))));
    assert!(matches!(of(&[plain(0), plain(1)]).plain(), Some((_, Some(_)))));
    assert!(of(&[]).plain().is_none());
    assert!(of(&[plain(0), soft]).plain().is_none());
    assert!(of(&[plain(0), plain(1), plain(2)]).plain().is_none());
    assert!(Record { leased: 1, ..of(&[plain(0)]) }.plain().is_none());
}
