//! Strikes of one source on several CPUs, in every order, by loom.

use limiter_common::time::Ticks;
use limiter_decision::ban::{self, BanTerms, Entry, History};
use limiter_decision::cell::Cell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;

use crate::{SECOND, at, terms};

const RULE: u32 = 7;

/// A word with no more order than in the program for arm64.
struct Word(Arc<AtomicU64>);

impl Cell for Word {
    fn load(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn acquire_fence(&self) {
        fence(Ordering::Acquire);
    }

    fn compare_exchange(&self, current: u64, new: u64) -> bool {
        self.0.compare_exchange(current, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

#[derive(Clone)]
struct Record([Arc<AtomicU64>; 3]);

impl Record {
    fn new() -> Self {
        Self([(); 3].map(|()| Arc::new(AtomicU64::new(0))))
    }

    fn read(&self) -> [u64; 3] {
        self.0.each_ref().map(|word| word.load(Ordering::Acquire))
    }
}

impl Entry for Record {
    fn until(&self) -> impl Cell {
        Word(Arc::clone(&self.0[0]))
    }

    fn history(&self) -> impl Cell {
        Word(Arc::clone(&self.0[1]))
    }

    fn rule(&self) -> impl Cell {
        Word(Arc::clone(&self.0[2]))
    }
}

fn strike(record: &Record, terms: &BanTerms, now: Ticks) -> bool {
    ban::record(|| ban::attempt(record, terms, RULE, now, true))
}

/// Two CPUs with two strikes each; three are a ban. There is exactly one, of the first length.
#[test]
fn a_ban_is_made_once() {
    for needed in 1..=3 {
        let mut order = loom::model::Builder::new();
        order.preemption_bound = Some(3);
        order.check(move || {
            let record = Record::new();
            let terms = terms(1, 60, 10, needed);
            let other = record.clone();
            let there =
                thread::spawn(move || (0..2).filter(|_| strike(&other, &terms, at(100))).count());
            let here = (0..2).filter(|_| strike(&record, &terms, at(100))).count();
            let bans = here + there.join().unwrap();
            let [until, history, rule] = record.read();
            let history = History::from_raw(history);
            assert_eq!(bans, 1, "{needed} strikes");
            assert_eq!((until, history.level()), (101 * SECOND, 1));
            assert_eq!((history.strikes(), rule), (0, u64::from(RULE)));
        });
    }
}
