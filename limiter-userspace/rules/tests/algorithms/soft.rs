//! A limit with a ceiling, of any two algorithms.

use std::sync::atomic::AtomicU64;

use limiter_common::time::Ticks;
use limiter_common::window::WallOffset;
use limiter_common::wire::Count;
use limiter_decision::algorithm::soft::{Grade, grade};
use limiter_decision::algorithm::{Charged, fixed_window, sliding_log};
use limiter_rules::compile::{self, Quota};
use proptest::prelude::*;

use crate::support::{FRAME, config, in_every_window, packets_up_to, pattern};

#[test]
fn the_table_of_grades() {
    use Charged::{Conforming, Contended, Over};
    for limit in [Conforming, Over, Contended] {
        // Over the ceiling the limit is not even asked.
        let unasked = || -> Charged { panic!("the limit was charged") };
        assert_eq!(grade(|| Over, unasked), Grade::Refused);
        assert_eq!(grade(|| Contended, unasked), Grade::Contended);
        let expected = if limit == Conforming { Grade::Within } else { Grade::Over };
        assert_eq!(grade(|| Conforming, || limit), expected);
    }
    assert!(Grade::Within.passes() && Grade::Over.passes());
    assert!(!Grade::Refused.passes() && !Grade::Contended.passes());
}

proptest! {
    #![proptest_config(config())]

    /// A log below a fixed window: what passes keeps the ceiling's bound, what passes unmarked is
    /// the log's, and marked packets do not use up the log.
    #[test]
    fn both_bounds_hold(limit in packets_up_to(31), more in 0u64..40, pattern in pattern()) {
        let ceiling = Quota { requests_per_unit: limit.requests_per_unit + more, ..limit };
        let log = compile::sliding_log(limit).unwrap();
        let window = compile::fixed_window(ceiling, FRAME).unwrap();
        let (head, ring) = (AtomicU64::new(0), [const { AtomicU64::new(0) }; 31]);
        let word = AtomicU64::new(0);
        let (mut within, mut passed) = (Vec::new(), Vec::new());
        let mut last: Vec<u64> = Vec::new();
        for packet in pattern.offered(limit.period.nanos(), Count::Packets) {
            let now = Ticks::from_nanos(packet.at);
            let graded = grade(
                || fixed_window::charge(&window, WallOffset::BOOT, &word, now, 1),
                || sliding_log::charge(&log, &head, &&ring, now),
            );
            let recent = last.iter().filter(|at| packet.at - **at < limit.period.nanos()).count() as u64;
            if graded.passes() {
                passed.push(packet);
                // Marked exactly when the log of unmarked packets is full.
                prop_assert_eq!(graded == Grade::Within, recent < limit.requests_per_unit);
            }
            if graded == Grade::Within {
                within.push(packet);
                last.push(packet.at);
            }
        }
        let width = u128::from(limit.period.nanos());
        in_every_window(&within, |w| w.sum <= u128::from(log.size) * (w.length / width + 1));
        in_every_window(&passed, |w| w.sum <= u128::from(window.limit) * (w.length.div_ceil(width) + 1));
    }
}
