//! Fingerprints: who is counted as one that came back.

use limiter_common::time::Ticks;
use limiter_decision::entries::fingerprint::{KEPT, MOST, STEP_BITS, touch};

fn at(steps: u64) -> Ticks {
    Ticks::new(steps << STEP_BITS)
}

/// Touches a word in turn; the counts.
fn counts(packets: &[(u64, u64)]) -> Vec<u32> {
    let mut word = 0;
    let touched = packets.iter().map(|(fingerprint, step)| {
        let (after, count) = touch(word, *fingerprint, at(*step));
        word = after;
        count
    });
    touched.collect()
}

#[test]
fn who_comes_back_is_counted_by_steps() {
    assert_eq!(counts(&[(7, 1), (7, 1), (7, 2), (7, 2), (7, 100)]), [1, 1, 2, 2, 3]);
    // Fingerprint and time 0 are as good as any.
    assert_eq!(counts(&[(0, 0), (0, 0), (0, 1)]), [1, 1, 2]);
    assert_eq!(counts(&[(0, 1024), (0, 1025)]), [1, 2]);
}

#[test]
fn who_is_silent_for_long_is_forgotten() {
    assert_eq!(counts(&[(7, 1), (7, 1 + KEPT - 1)]), [1, 2]);
    assert_eq!(counts(&[(7, 1), (7, 1 + KEPT)]), [1, 1]);
    assert_eq!(counts(&[(7, 1), (7, 900)]), [1, 1]);
}

#[test]
fn two_stand_in_a_word_and_the_older_one_gives_way() {
    assert_eq!(counts(&[(1, 1), (2, 2), (1, 3), (2, 4)]), [1, 1, 2, 2]);
    // 1 was touched last: 3 takes the place of 2.
    assert_eq!(
        counts(&[(1, 1), (2, 2), (1, 3), (3, 4), (1, 5), (3, 6), (2, 7)]),
        [1, 1, 2, 1, 3, 2, 1]
    );
}

#[test]
fn a_count_ends_at_the_most() {
    let packets: Vec<_> = (0..100).map(|step| (9, step)).collect();
    let counts = counts(&packets);
    assert_eq!(counts[61..65], [62, 63, 63, 63]);
    assert_eq!(counts[99], MOST);
}

#[test]
fn a_clock_that_runs_back_forgets() {
    assert_eq!(counts(&[(7, 5), (7, 4), (7, 5)]), [1, 1, 2]);
}
