//! Turns of answers: a few at a time, and nobody can keep another reader out by reading slowly.
//! Changes do not wait here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

/// Answers under way at once.
pub(super) const MOST: usize = 4;

/// Time that a reader waits before another one must give way.
const WAIT: Duration = Duration::from_millis(500);

/// Time without progress after which a reader gives way to anybody.
const STALLED: Duration = Duration::from_secs(2);

/// The answers of a server.
#[derive(Debug)]
pub(super) struct Turns {
    most: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Answers under way, the oldest first.
    under_way: Vec<UnderWay>,
    waiting: Vec<Waiting>,
    next: u64,
}

#[derive(Debug)]
struct UnderWay {
    number: u64,
    reader: Reader,
    /// Time at which the last part of the answer was taken.
    taken: Instant,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    reader: Reader,
    admit: oneshot::Sender<()>,
}

#[derive(Clone, Debug)]
pub(super) struct Reader {
    /// Key that distinguishes readers: the user.
    pub(super) who: u32,
    /// True if the reader comes before others, because it may also change something.
    pub(super) first: bool,
    /// Notified when the reader has to give way.
    pub(super) leave: Arc<Notify>,
}

/// An answer that is under way or waits to be. Dropping it ends the answer.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Arc<Turns>,
    number: u64,
}

impl Turns {
    /// Turns for `most` answers at once.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, state: Mutex::default() })
    }

    /// Waits for a turn. A reader that waits too long makes another one give way; the owner does so
    /// at once, and a reader whose answer makes no progress gives way to anybody.
    pub(super) async fn take(self: &Arc<Self>, reader: &Reader) -> Turn {
        let (turn, mut admitted) = self.ask(reader);
        let mut patience = if reader.first { Duration::ZERO } else { WAIT };
        // The sender is only dropped together with the turn.
        while timeout(patience, &mut admitted).await.is_err() {
            self.evict(reader);
            patience = WAIT;
        }
        turn
    }

    fn ask(self: &Arc<Self>, reader: &Reader) -> (Turn, oneshot::Receiver<()>) {
        let (admit, admitted) = oneshot::channel();
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.waiting.push(Waiting { number, reader: reader.clone(), admit });
        self.admit(&mut state);
        drop(state);
        (Turn { turns: Arc::clone(self), number }, admitted)
    }

    /// Starts waiting turns while there is room: first those that go before others, then those of
    /// the user with the fewest answers under way.
    fn admit(&self, state: &mut State) {
        while state.under_way.len() < self.most {
            let held = state.held();
            let next = state.waiting.iter().enumerate().min_by_key(|(_, waiting)| {
                let held = held.get(&waiting.reader.who).copied().unwrap_or_default();
                (!waiting.reader.first, held, waiting.number)
            });
            let Some((index, _)) = next else { return };
            let Waiting { number, reader, admit } = state.waiting.remove(index);
            if admit.send(()).is_ok() {
                state.under_way.push(UnderWay { number, reader, taken: Instant::now() });
            }
        }
    }

    /// Ends an answer to make room for `reader`, if one must give way.
    fn evict(&self, reader: &Reader) {
        let mut state = self.lock();
        let Some(index) = state.victim(reader, Instant::now()) else { return };
        state.under_way.remove(index).reader.leave.notify_one();
        self.admit(&mut state);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn held(&self) -> HashMap<u32, usize> {
        let mut held = HashMap::new();
        for under_way in &self.under_way {
            *held.entry(under_way.reader.who).or_default() += 1;
        }
        held
    }

    /// The answer that gives way: one that makes no progress, or else the oldest of the reader with
    /// the most.
    fn victim(&self, for_whom: &Reader, now: Instant) -> Option<usize> {
        let all = || self.under_way.iter().enumerate();
        let stalled = all()
            .filter(|(_, at)| now.saturating_duration_since(at.taken) >= STALLED)
            .min_by_key(|(_, at)| at.taken);
        if let Some((index, _)) = stalled {
            return Some(index);
        }
        let held = self.held();
        let of = |who: u32| held.get(&who).copied().unwrap_or_default();
        let mine = of(for_whom.who);
        all()
            .filter(|(_, at)| {
                let theirs = of(at.reader.who);
                at.reader.who != for_whom.who
                    && gives_way(theirs, at.reader.first, mine, for_whom.first)
            })
            .min_by_key(|(_, at)| {
                (at.reader.first, std::cmp::Reverse(of(at.reader.who)), at.number)
            })
            .map(|(index, _)| index)
    }
}

/// Whether a reader holding `theirs` slots must yield one to a reader holding `mine`: to even out,
/// or because the other is the owner.
pub(crate) const fn gives_way(theirs: usize, they_first: bool, mine: usize, i_first: bool) -> bool {
    theirs > mine + 1 || (i_first && !they_first)
}

impl Turn {
    /// Notes that another part of the answer was taken.
    pub(super) fn goes_on(&self) {
        let mut state = self.turns.lock();
        if let Some(mine) = state.under_way.iter_mut().find(|at| at.number == self.number) {
            mine.taken = Instant::now();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.turns.lock();
        state.under_way.retain(|at| at.number != self.number);
        state.waiting.retain(|at| at.number != self.number);
        self.turns.admit(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn reader(who: u32) -> Reader {
        Reader { who, first: who == 0, leave: Arc::default() }
    }

    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    fn under_way(turns: &Turns) -> Vec<u32> {
        turns.lock().under_way.iter().map(|at| at.reader.who).collect()
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_owner_waits_for_no_reader() {
        let turns = Turns::new(2);
        let slow = [reader(1000), reader(1000)];
        let held = [turns.take(&slow[0]).await, turns.take(&slow[1]).await];
        let (third, mut waits) = turns.ask(&reader(1000));
        assert_eq!(now(&mut waits), None);
        let owner = turns.take(&reader(0)).await;
        assert!(now(slow[0].leave.notified()).is_some(), "the oldest gives way");
        assert!(now(slow[1].leave.notified()).is_none());
        assert_eq!(under_way(&turns), [1000, 0]);
        drop(owner);
        assert_eq!(under_way(&turns), [1000, 1000], "the third has its turn");
        drop((third, held));
        assert!(under_way(&turns).is_empty());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn nobody_keeps_another_user_out() {
        let turns = Turns::new(2);
        let first = reader(1);
        let held = [turns.take(&first).await, turns.take(&reader(1)).await];
        let second = turns.take(&reader(2)).await;
        assert!(now(first.leave.notified()).is_some());
        assert_eq!(under_way(&turns), [1, 2]);
        // Both hold the same number, so a third waits until one is done.
        let (third, waits) = turns.ask(&reader(1));
        turns.evict(&reader(1));
        assert_eq!(under_way(&turns), [1, 2]);
        drop(second);
        waits.await.unwrap();
        assert_eq!(under_way(&turns), [1, 1]);
        drop((third, held));
    }

    #[test]
    fn whoever_takes_nothing_gives_way_to_anybody() {
        let turns = Turns::new(1);
        let (stalled, _) = turns.ask(&reader(1));
        let state = turns.lock();
        let later = Instant::now() + STALLED;
        assert_eq!(state.victim(&reader(1), Instant::now()), None);
        assert_eq!(state.victim(&reader(1), later), Some(0));
        assert_eq!(state.victim(&reader(0), Instant::now()), Some(0));
        drop(state);
        drop(stalled);
    }

    #[test]
    fn those_who_left_are_forgotten() {
        let turns = Turns::new(1);
        let (first, _) = turns.ask(&reader(1));
        let left = turns.ask(&reader(1));
        drop(left);
        assert!(turns.lock().waiting.is_empty());
        // The receiver is dropped before the reader's turn comes.
        let (gone, receiver) = turns.ask(&reader(1));
        drop(receiver);
        let (next, mut admitted) = turns.ask(&reader(1));
        drop(first);
        assert_eq!(admitted.try_recv(), Ok(()));
        drop((gone, next));
    }
}
