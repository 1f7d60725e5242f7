//! A bucket that other CPUs always change first.

use std::cell::Cell as Plain;

use limiter_common::bucket::{Change, Word};
use limiter_common::time::Ticks;
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::Limit;
use limiter_decision::cell::Cell;
use limiter_decision::engine::exchange;
use limiter_decision::gcra::Charge;
use limiter_decision::rounds::MAX_TRIES;

/// A word that is another one after each look.
struct Busy {
    word: Plain<u64>,
    exchanges: Plain<u64>,
    /// How many are lost before one is won.
    lost: u64,
}

impl Cell for Busy {
    fn load(&self) -> u64 {
        self.word.get()
    }

    fn compare_exchange(&self, current: u64, new: u64) -> bool {
        assert_eq!(current, self.word.get());
        self.exchanges.set(self.exchanges.get() + 1);
        let won = self.exchanges.get() > self.lost;
        // Another CPU's packet: a tick more is owed.
        let tick = |word: Word| Word::new(word.tat().plus(Ticks::new(1)), word.scale());
        self.word.set(if won { new } else { tick(Word::from_raw(current)).raw() });
        won
    }
}

fn charge(lost: u64) -> (Option<Reason>, Busy) {
    let limit = Limit { increment: 1_000, tolerance: 1_000_000, ..Limit::default() };
    let now = Ticks::from_nanos(1_000_000);
    let word = Word::new(now, false);
    let busy = Busy { word: Plain::new(word.raw()), exchanges: Plain::new(0), lost };
    let mut stored = Change::NONE;
    let reason = exchange(&busy, false, &Charge::new(&limit, now, 1), &mut stored);
    (reason, busy)
}

/// The first try is the caller's. After the last one the packet is dropped: there is no waiting in
/// XDP.
#[test]
fn who_loses_every_exchange_is_dropped() {
    let (reason, busy) = charge(u64::MAX);
    assert_eq!(reason, Some(Reason::Contended));
    assert_eq!(Reason::Contended.verdict(), Verdict::Drop);
    assert_eq!(busy.exchanges.get(), MAX_TRIES - 1);
    let (reason, busy) = charge(MAX_TRIES - 2);
    assert_eq!(reason, Some(Reason::Conforming));
    assert_eq!(busy.exchanges.get(), MAX_TRIES - 1);
}
