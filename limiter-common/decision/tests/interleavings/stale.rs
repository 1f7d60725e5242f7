//! Buckets that slept, and packets that were held up, while slots were filled anew. What a slot
//! meant is not known then, and what is not known is not granted.

use limiter_common::bucket::{Resolved, Slot};
use limiter_common::verdict::Reason;
use limiter_common::wire::Limit;

use crate::maps::{Maps, burst, owing, resolved, unlimited};

/// A packet of a source that owes four packets, whose bucket waits for its conversion.
fn packet(limits: &[Limit], at: Resolved, generation: u64, rule: u32) -> Reason {
    let (limits, reason) = (limits.to_vec(), std::sync::Arc::new(std::sync::Mutex::new(None)));
    let seen = std::sync::Arc::clone(&reason);
    loom::model(move || {
        let maps = Maps::new(generation, &limits, [rule, rule]).with_bucket(owing(4, false), at);
        *seen.lock().unwrap() = Some(maps.packet());
    });
    let reason = reason.lock().unwrap().take();
    reason.unwrap()
}

/// The limit before was replaced by one that would forgive everything.
#[test]
fn the_limit_before_is_forgotten_when_its_slot_was_filled_anew() {
    let at = resolved(3, 1, Slot::new(0), true);
    assert_eq!(packet(&[burst(8, 1), burst(8, 3)], at, 3, 1), Reason::Conforming, "it is known");
    let limits = [unlimited(5), burst(8, 3)];
    assert_eq!(packet(&limits, at, 3, 1), Reason::OverLimit);
    assert_eq!(packet(&limits, at, 6, 1), Reason::OverLimit, "after another generation");
}

/// The limit that the bucket waits for was replaced in the same way, before it was converted to it.
#[test]
fn a_waiting_conversion_to_a_slot_that_was_filled_anew_forgives_nothing() {
    let at = resolved(3, 1, Slot::new(0), true);
    let limits = [burst(8, 1), unlimited(5), burst(8, 6)];
    assert_eq!(packet(&limits, at, 6, 2), Reason::OverLimit);
}

/// A packet that reads the slot before while another CPU brings the bucket up to a newer limit: it
/// does not store what it computed.
#[test]
fn a_conversion_that_was_held_up_is_not_stored() {
    loom::model(|| {
        let limits = [burst(8, 1), burst(8, 3), burst(8, 4)];
        let maps = Maps::new(3, &limits, [1, 1])
            .with_bucket(owing(4, false), resolved(3, 1, Slot::new(0), true))
            .meanwhile(0, resolved(4, 2, Slot::NONE, false));
        assert_eq!(maps.pass_of(8), 4);
    });
}
