//! Random strikes against a model without packed words.

use limiter_common::time::Ticks;
use limiter_decision::ban::{BanTerms, History, Strike, strike};
use proptest::prelude::*;

use crate::{NOTHING, SECOND};

/// The grain that the packed history rounds to.
const GRAIN: u64 = 1 << 23;

fn any_terms() -> impl Strategy<Value = BanTerms> {
    (1..100_u64, 1..1000_u64, 1..1000_u64, 1..200_u32).prop_map(|(first, more, memory, strikes)| {
        crate::terms(first, first + more, memory, strikes)
    })
}

#[derive(Default)]
struct Model {
    until: u64,
    level: u64,
    strikes: u64,
    since: u64,
}

proptest! {
    /// Times are multiples of the grain, so that the model needs no rounding.
    #[test]
    fn strikes_and_bans_are_those_of_the_model(
        terms in any_terms(),
        steps in prop::collection::vec(
            prop_oneof![Just(0), 0..SECOND / GRAIN, 0..100 * SECOND / GRAIN, 0..2000 * SECOND / GRAIN],
            1..400,
        ),
    ) {
        let mut now = 1000 * SECOND / GRAIN * GRAIN;
        let mut model = Model::default();
        let (mut until, mut history) = (Ticks::ZERO, NOTHING);
        for step in steps {
            now += step * GRAIN;
            let at = Ticks::new(now);
            let next = strike(until, history, &terms, at);
            if now < model.until {
                prop_assert_eq!(next, Strike::Banned);
                continue;
            }
            if now - model.until > terms.memory {
                model.level = 0;
            }
            if model.strikes == 0 || now - model.since > terms.memory {
                (model.strikes, model.since) = (0, now);
            }
            model.strikes += 1;
            if model.strikes < u64::from(terms.strikes) {
                let Strike::Counted(counted) = next else {
                    panic!("{next:?} after {} strikes", model.strikes);
                };
                prop_assert_eq!(counted.strikes(), model.strikes);
                prop_assert_eq!(counted.level(), model.level);
                history = counted;
                continue;
            }
            let length = (terms.first << model.level.min(20)).min(terms.longest);
            let Strike::Ban { history: after, until: end } = next else {
                panic!("{next:?} at the last strike");
            };
            prop_assert_eq!(end.get() - now, length);
            prop_assert!(end.get() - now <= terms.longest);
            model = Model { until: end.get(), level: model.level + 1, strikes: 0, since: 0 };
            prop_assert_eq!(after.level(), model.level);
            (until, history) = (end, after);
        }
    }

    /// Whatever the words and the clock say, no ban is longer than the longest.
    #[test]
    fn no_ban_is_longer_than_the_longest(
        until: u64,
        history: u64,
        now: u64,
        first: u64,
        longest: u64,
        memory: u64,
        strikes: u32,
    ) {
        let terms = BanTerms { first, longest, memory, strikes };
        let now = Ticks::new(now);
        match strike(Ticks::new(until), History::from_raw(history), &terms, now) {
            Strike::Ban { until, history } => {
                prop_assert!(until.since(now).get() <= longest);
                prop_assert!(history.level() >= 1 && history.strikes() == 0);
            }
            Strike::Counted(next) => {
                prop_assert!(next.strikes() < u64::from(strikes));
                prop_assert!(next.since() <= now.plus(Ticks::new(GRAIN)) || next.strikes() > 1);
            }
            Strike::Banned => {}
        }
    }
}
