//! The short way of a token bucket that is alone in its rule is the long one.

use std::sync::atomic::{AtomicU64, Ordering};

use limiter_common::algorithm::window::WallOffset;
use limiter_common::meter::alone::{attempt, peek};
use limiter_common::meter::{self, Arrival, Undo};
use limiter_common::time::Ticks;
use limiter_common::wire::{Algorithm, Limit, LimitSpec, Role};

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
        assert!(spec.is_first_token_bucket());
        let now = 1 << 40;
        let tat = now + (next(&mut random) >> 39) - (1 << 24);
        let (was, scale) = (next(&mut random) & 1, next(&mut random) & 7 != 0);
        let word = tat << 1 | if scale { 1 } else { was };
        let arrival = Arrival { now: Ticks::new(now), offset: WallOffset::BOOT, units: 1 + was };
        let (alone, all) = (AtomicU64::new(word), [AtomicU64::new(word)]);
        let peeked = peek(&spec, &&alone, true, &arrival);
        assert_eq!(peeked, meter::peek(&spec, &&all, true, &arrival));
        outcomes[peeked as usize] += 1;
        let (mut short, mut long) = (Undo::default(), Undo::default());
        let charged = attempt(&spec, &&alone, true, &arrival, &mut short);
        assert_eq!(charged, meter::attempt(&spec, &&all, true, &arrival, &mut long));
        assert_eq!(short, long);
        assert_eq!(alone.load(Ordering::Relaxed), all[0].load(Ordering::Relaxed));
    }
    assert!(outcomes.iter().all(|count| *count > 500), "{outcomes:?}");
}

#[test]
fn others_go_the_long_way() {
    let limit = Limit::default();
    for spec in [
        LimitSpec::of_rate(Algorithm::LeakyBucket, &limit, Role::Hard),
        LimitSpec::of_rate(Algorithm::TokenBucket, &limit, Role::Soft),
        LimitSpec::of_rate(Algorithm::TokenBucket, &limit, Role::Hard).at(1),
    ] {
        assert!(!spec.is_first_token_bucket());
    }
}
