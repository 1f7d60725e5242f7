//! Bans: how long, how many strikes, what is forgotten; by example, by a model that remembers every
//! strike, and with several CPUs in every order.

mod orders;
mod properties;

use limiter_common::time::{MAX_TICKS, Ticks};
use limiter_decision::ban::{BanTerms, History, Strike, strike};

/// Ticks of a second.
const SECOND: u64 = 32_000_000_000;

fn terms(first: u64, longest: u64, memory: u64, strikes: u32) -> BanTerms {
    BanTerms { first: first * SECOND, longest: longest * SECOND, memory: memory * SECOND, strikes }
}

const NOTHING: History = History::from_raw(0);

fn at(seconds: u64) -> Ticks {
    Ticks::new(seconds * SECOND)
}

#[test]
fn the_last_strike_is_a_ban() {
    let terms = terms(1, 60, 10, 3);
    let mut history = NOTHING;
    for count in 1..3 {
        let Strike::Counted(next) = strike(Ticks::ZERO, history, &terms, at(100)) else {
            panic!("strike {count} is not the last");
        };
        assert_eq!((next.strikes(), next.level()), (count, 0));
        history = next;
    }
    let Strike::Ban { history, until } = strike(Ticks::ZERO, history, &terms, at(101)) else {
        panic!("the third strike is the last");
    };
    assert_eq!((until, history.level(), history.strikes()), (at(102), 1, 0));
    assert_eq!(strike(until, history, &terms, Ticks::new(at(102).get() - 1)), Strike::Banned);
    assert!(matches!(strike(until, history, &terms, at(102)), Strike::Counted(_)));
}

/// The end of a ban is stored after its history: who comes in between sees it all the same.
#[test]
fn a_ban_holds_before_its_end_is_stored() {
    let terms = terms(1, 60, 10, 1);
    let Strike::Ban { history, .. } = strike(Ticks::ZERO, NOTHING, &terms, at(100)) else {
        panic!("one strike is enough");
    };
    assert_eq!(strike(Ticks::ZERO, history, &terms, at(100)), Strike::Banned);
}

#[test]
fn lengths_double_up_to_the_longest() {
    let terms = terms(1, 100, 10, 1);
    let seconds: Vec<_> = (0..10).map(|level| terms.length(level).get() / SECOND).collect();
    assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 64, 100, 100, 100]);
    for level in [62, 63, 64, 255] {
        assert_eq!(terms.length(level), at(100));
    }
    let endless = BanTerms { first: u64::MAX, longest: u64::MAX, ..terms };
    assert_eq!(endless.length(0).get(), MAX_TICKS);
}

#[test]
fn a_clock_that_ran_backwards_forgets_nothing() {
    let terms = terms(1, 60, 10, 2);
    let Strike::Counted(history) = strike(Ticks::ZERO, NOTHING, &terms, at(1000)) else {
        panic!("one of two");
    };
    assert!(matches!(strike(Ticks::ZERO, history, &terms, at(5)), Strike::Ban { .. }));
}
