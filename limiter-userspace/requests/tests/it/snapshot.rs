//! Buckets across restarts: what a snapshot keeps, and what it does not grant.

use std::io::Cursor;

use limiter_requests::{
    Asked, Descriptor, Detail, Limiter, Loaded, Moment, Snapshot, Terms, Unusable,
};
use proptest::prelude::*;
use smallvec::smallvec;

use crate::support::{MONDAY, SECOND, ask, at, descriptors, file, limiter, passes, with_limit};

/// Ten a minute in all ways, and a calendar.
const LIMITS: [&str; 8] = [
    "rate: 10/min, burst: 10",
    "rate: 10/min, algorithm: leaky_bucket, backlog: 54s",
    "rate: 10/min, algorithm: fixed_window",
    "rate: 10/min, algorithm: sliding_log",
    "rate: 10/min, algorithm: sliding_counter",
    "rate: 10/min, algorithm: sliding_slots, slots: 4",
    "rate: 10/min, algorithm: sliding_slots, slots: 4, strict: true",
    "unit: month, requests_per_unit: 10, algorithm: fixed_window",
];

fn text(limit: &str) -> String {
    format!("domain: d\ndescriptors: [{{key: k, rate_limit: {{{limit}}}}}]\n")
}

fn saved(limiter: &Limiter, moment: &Moment, clock: Option<&str>) -> Vec<u8> {
    let mut bytes = Vec::new();
    limiter.save(&mut bytes, moment, clock).unwrap();
    bytes
}

/// A limiter with the rules of a file that goes on with a snapshot.
fn gone_on(
    (rules, most): (&str, usize),
    bytes: &[u8],
    moment: &Moment,
    clock: Option<&str>,
) -> (Limiter, Loaded) {
    let snapshot = Snapshot::open(Cursor::new(bytes)).unwrap();
    let limiter = Limiter::of(most, &snapshot);
    limiter.apply(&[("r.yaml".to_owned(), file(rules))], moment).unwrap();
    let loaded = limiter.load(snapshot, moment, clock).unwrap();
    (limiter, loaded)
}

/// What is left of the only limit of a key; changes nothing.
fn left(limiter: &Limiter, text: &str, moment: &Moment) -> u64 {
    let look = Descriptor { hits: Some(0), ..descriptors(&[text])[0].clone() };
    let asked = Asked { domain: "d", descriptors: smallvec![look], hits: 0 };
    let answer = limiter.decide(&limiter.rules(), &asked, moment, Detail::Left).unwrap();
    answer.statuses[0].nearest.unwrap().1.remaining
}

proptest! {
    /// On the same clock since boot every decision is the one that it would have been, whatever is
    /// done to the wall clock.
    #[test]
    fn a_restart_changes_no_decision(
        limit in 0..LIMITS.len(),
        steps in prop::collection::vec((0_u64..20_000, 0_usize..3, -90_i64..90), 2..80),
        restart in 0_usize..80,
    ) {
        let rules = text(LIMITS[limit]);
        let (there, mut here) = (limiter(&rules, 10), limiter(&rules, 10));
        // The same secret: only the answers are compared.
        let (mut boot, mut wall) = (3600 * SECOND, MONDAY);
        for (number, (millis, key, step)) in steps.into_iter().enumerate() {
            boot += millis * 1_000_000;
            wall += millis * 1_000_000;
            if number == restart {
                let before = Moment::of_nanos(boot, wall);
                let bytes = saved(&here, &before, Some("a"));
                wall = wall.saturating_add_signed(step * 86_400 * 1_000_000_000);
                boot += SECOND;
                let moment = Moment::of_nanos(boot, wall);
                let loaded;
                (here, loaded) = gone_on((&rules, 10), &bytes, &moment, Some("a"));
                prop_assert!(loaded.same_clock);
            }
            let moment = Moment::of_nanos(boot, wall);
            let key = ["k=a", "k=b", "k=c"][key];
            prop_assert_eq!(left(&here, key, &moment), left(&there, key, &moment));
            let decide = |limiter: &Limiter| {
                let asked = Asked { domain: "d", descriptors: descriptors(&[key]), hits: 1 };
                limiter.decide(&limiter.rules(), &asked, &moment, Detail::Decision).unwrap().over
            };
            prop_assert_eq!(decide(&here), decide(&there));
        }
    }

    /// Across a reboot no more passes than without it, however long the machine was off, and
    /// whatever the wall clock says.
    #[test]
    fn a_reboot_grants_nothing(
        limit in prop::sample::select(vec![0_usize, 1, 3]),
        steps in prop::collection::vec(0_u64..8_000, 2..80),
        restart in 0_usize..80,
        (off, on) in (0_u64..200_000, 0_u64..100_000),
        wall in 0..2 * MONDAY,
    ) {
        let rules = text(LIMITS[limit]);
        let (there, mut here) = (limiter(&rules, 10), limiter(&rules, 10));
        let (mut now, mut booted) = (3600 * SECOND, 0);
        let mut passed = [0, 0];
        for (number, millis) in steps.into_iter().enumerate() {
            now += millis * 1_000_000;
            if number == restart {
                let bytes = saved(&here, &Moment::of_nanos(now, MONDAY), Some("a"));
                booted = now + off * 1_000_000;
                now = booted + on * 1_000_000;
                let moment = Moment::of_nanos(now - booted, wall);
                let loaded;
                (here, loaded) = gone_on((&rules, 10), &bytes, &moment, Some("b"));
                prop_assert!(!loaded.same_clock);
            }
            let moments = [Moment::of_nanos(now - booted, wall), Moment::of_nanos(now, MONDAY)];
            let limiters = [&here, &there].into_iter().zip(moments);
            for ((limiter, moment), passed) in limiters.zip(&mut passed) {
                let asked = Asked { domain: "d", descriptors: descriptors(&["k=a"]), hits: 1 };
                let answer =
                    limiter.decide(&limiter.rules(), &asked, &moment, Detail::Decision).unwrap();
                *passed += u32::from(!answer.over);
            }
            prop_assert!(passed[0] <= passed[1], "{} of {}", passed[0], passed[1]);
        }
    }
}

#[test]
fn after_a_reboot_what_was_used_counts_from_its_begin_and_no_longer() {
    for limit in LIMITS {
        let (rules, before) = (text(limit), with_limit(limit));
        for _ in 0..10 {
            assert!(passes(&before, &["k=all"], 0), "{limit}");
        }
        for _ in 0..7 {
            assert!(passes(&before, &["k=some"], 0), "{limit}");
        }
        let bytes = saved(&before, &at(0), Some("a"));
        let wall = MONDAY + 10 * SECOND;
        // Known to be another clock, and not known.
        for (clock, now) in [(Some("b"), 1), (None, 500 * SECOND), (Some("a"), 1)] {
            let moment = Moment::of_nanos(now, wall);
            let (after, loaded) = gone_on((&rules, 10), &bytes, &moment, clock);
            assert_eq!(loaded, Loaded { keys: 2, no_room: 0, same_clock: false }, "{limit}");
            assert_eq!(left(&after, "k=all", &moment), 0, "{limit}");
            let some = left(&after, "k=some", &moment);
            assert!((2..=3).contains(&some), "{limit}: {some}");
            // Two windows later in both clocks, and for the month, the next one.
            let days = if limit.contains("month") { 40 } else { 0 };
            let later = days * 86_400 * SECOND + 120 * SECOND;
            let moment = Moment::of_nanos(now + later, wall + later);
            assert_eq!(left(&after, "k=all", &moment), 10, "{limit}");
        }
    }
}

#[test]
fn rules_that_changed_meanwhile_go_on_as_after_a_reload() {
    let (old, new) = (text("rate: 5/hour"), text("rate: 3/hour"));
    let there = limiter(&old, 10);
    for _ in 0..4 {
        assert!(passes(&there, &["k=a"], 0));
    }
    let bytes = saved(&there, &at(0), Some("a"));
    let (here, _) = gone_on((&new, 10), &bytes, &at(0), Some("a"));
    there.apply(&[("r.yaml".to_owned(), file(&new))], &at(0)).unwrap();
    assert_eq!(left(&here, "k=a", &at(0)), 1);
    assert_eq!(left(&there, "k=a", &at(0)), 1);
}

#[test]
fn limits_that_requests_bring_go_on() {
    let rules = text("rate: 5/hour");
    let before = limiter(&rules, 10);
    let [other, once] = ["rate: 7/day", "rate: 1/day"].map(|limit| {
        let limiter = with_limit(limit);
        let rules = limiter.rules();
        let Terms::Limits(limits) = &rules.domain("d").unwrap().rules()[0].terms else {
            panic!("no limit")
        };
        limits.limits().all()[0].written
    });
    let over = |limiter: &Limiter, limit, hits| {
        let hits = Some(hits);
        let descriptor =
            Descriptor { limit: Some(limit), hits, ..descriptors(&["k=a"])[0].clone() };
        let asked = Asked { domain: "d", descriptors: smallvec![descriptor], hits: 1 };
        limiter.decide(&limiter.rules(), &asked, &at(0), Detail::Left).unwrap().over
    };
    // Known there before the other one, and not known here: the order of limits says nothing.
    assert!(!over(&before, other, 0));
    assert!(!over(&before, once, 1) && over(&before, once, 1));
    let bytes = saved(&before, &at(0), Some("a"));
    let (after, loaded) = gone_on((&rules, 10), &bytes, &at(0), Some("a"));
    assert_eq!(loaded.keys, 2, "the look is kept, too");
    assert!(over(&after, once, 1), "it was used up");
}

#[test]
fn more_keys_than_there_is_room_for_are_counted() {
    let rules = text("rate: 5/hour");
    let before = limiter(&rules, 10);
    for key in ["k=a", "k=b", "k=c"] {
        assert!(passes(&before, &[key], 0));
    }
    let bytes = saved(&before, &at(0), Some("a"));
    let (after, loaded) = gone_on((&rules, 2), &bytes, &at(0), Some("a"));
    assert_eq!(loaded, Loaded { keys: 2, no_room: 1, same_clock: true });
    assert_eq!(after.keys(), 2);
}

#[test]
fn a_key_of_a_token_bucket_takes_32_bytes() {
    let before = limiter(&text("rate: 5/hour"), 2000);
    let empty = saved(&before, &at(0), Some("a")).len();
    for key in 0..2000 {
        assert!(passes(&before, &[&format!("k={key}")], 0));
    }
    let keys = saved(&before, &at(0), Some("a")).len() - empty;
    // The number of keys in each of 256 shards, too.
    assert!((64_000..=64_000 + 256 * 8).contains(&keys), "{keys}");
}

#[test]
fn keys_of_which_nothing_is_used_are_not_written() {
    let rules = text("rate: 1/s, burst: 1");
    let before = limiter(&rules, 10);
    assert!(passes(&before, &["k=a"], 0) && passes(&before, &["k=b"], 5 * SECOND));
    let mut bytes = Vec::new();
    assert_eq!(before.save(&mut bytes, &at(5 * SECOND), Some("a")).unwrap(), 1);
    // Buckets that are full again when they are read take no room.
    let (after, loaded) = gone_on((&rules, 10), &bytes, &at(60 * SECOND), Some("a"));
    assert_eq!((loaded.keys, after.keys()), (0, 0));
    assert!(!ask(&after, &["k=b"], 1, 60 * SECOND).over);
}

#[test]
fn no_other_content_is_used() {
    let before = limiter(&text("rate: 5/hour"), 10);
    assert!(passes(&before, &["k=a"], 0) && passes(&before, &["k=b"], 0));
    let whole = saved(&before, &at(0), Some("a"));
    Snapshot::open(Cursor::new(&whole)).unwrap();
    for bit in 0..whole.len() * 8 {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let error = Snapshot::open(Cursor::new(flipped)).unwrap_err();
        assert!(matches!(error, Unusable::Foreign | Unusable::Damaged(_)), "{bit}: {error}");
    }
    for end in 0..whole.len() {
        let error = Snapshot::open(Cursor::new(&whole[..end])).unwrap_err();
        assert!(matches!(error, Unusable::Foreign | Unusable::Damaged(_)), "{end}: {error}");
    }
    let longer = [whole.as_slice(), b"\n"].concat();
    Snapshot::open(Cursor::new(longer)).unwrap_err();
}
