//! A bucket that is taken up again in the line slot where it was found.

use std::sync::atomic::AtomicU64;

use limiter_common::bucket::Word;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_decision::cell::{Cell as _, SourceBucket as _};
use limiter_decision::line::{bucket_again, bucket_in, in_line_slot};

use crate::maps::{Lines, Maps, Rules, limit, source};

/// In the line slot, a source finds the bucket that a search finds. A look that was slow charges
/// nobody once the line slot is another source's, whatever word it saw; and nor does one that saw
/// the word that the other source has now.
#[test]
fn in_a_line_slot_a_source_charges_nobody_else() {
    let rules =
        Rules { limits: vec![limit(1 << 10, 3, 0)], slot: |_, _| 0, generation: AtomicU64::new(1) };
    let table = Lines::new(1);
    let maps = Maps { store: &table, rules: &rules };
    let mut now = Ticks::new(1 << 40);
    for number in 1..=7 {
        assert_eq!(maps.packet(&source(number), now), Reason::Conforming);
    }
    let found_in = [1, 2, 3, 4, 5, 6, 7].map(|number| {
        let bucket_key = source(number);
        let (line_slot, found) = in_line_slot(&maps, &bucket_key, table.all()).unwrap();
        let again = bucket_in(&maps, &bucket_key, line_slot).unwrap();
        assert_eq!(again.resolved().load(), found.resolved().load());
        let old = again.word().load();
        assert_eq!(old, bucket_again(&maps, &bucket_key).unwrap().word().load());
        let next = Word::new(Word::from_raw(old).tat().plus(Ticks::new(1)), false);
        assert!(again.word().compare_exchange(old, next.raw()), "source {number}");
        (bucket_key, line_slot, next.raw())
    });
    // All have drained, and others take their line slots.
    now = now.plus(Ticks::new(1 << 30));
    for number in 8..=14 {
        assert_eq!(maps.packet(&source(number), now), Reason::Conforming);
    }
    for (bucket_key, line_slot, before) in found_in {
        let bucket = bucket_in(&maps, &bucket_key, line_slot).unwrap();
        bucket.resolved().load();
        assert!(Word::from_raw(bucket.word().load()).is_gone());
        let others = table.entries().into_iter().map(|entry| entry.word);
        for old in others.chain([before]) {
            assert!(!bucket.word().compare_exchange(old, old + 2));
        }
    }
}
