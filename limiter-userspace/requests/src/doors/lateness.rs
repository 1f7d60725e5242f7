//! How late the answering threads are. Where more is asked than they can answer, all requests wait,
//! and deciding is a small part of the cost of an answer: refusing some undecided would make none
//! of the others earlier. So the process reports lateness, and sheds nothing.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Time between two looks of a thread.
const LOOK: Duration = Duration::from_millis(100);

/// Time after which Envoy stops waiting for an answer, unless its configuration says otherwise
/// (`timeout` of `envoy.extensions.filters.http.ratelimit.v3.RateLimit`).
const LATE: Duration = Duration::from_millis(20);

/// Looks in a row after which a thread is said to be late, or no longer: one second and five.
const BEGINS: u32 = 10;
const ENDS: u32 = 50;

/// How late each thread was at its last look, and how many of them are late.
#[derive(Debug)]
pub(crate) struct Lateness {
    nanos: Box<[AtomicU64]>,
    late: AtomicUsize,
}

impl Lateness {
    pub(crate) fn new(threads: usize) -> Self {
        let nanos = (0..threads).map(|_| AtomicU64::new(0)).collect();
        Self { nanos, late: AtomicUsize::new(0) }
    }

    /// How late the latest of the threads was.
    pub(crate) fn worst(&self) -> Duration {
        let worst = self.nanos.iter().map(|thread| thread.load(Ordering::Relaxed)).max();
        Duration::from_nanos(worst.unwrap_or(0))
    }

    /// True if a thread is late again and again.
    pub(crate) fn is_late(&self) -> bool {
        self.late.load(Ordering::Relaxed) > 0
    }

    /// Looks how late the calling thread is, again and again.
    pub(crate) async fn watch(&self, thread: usize) {
        let Some(last) = self.nanos.get(thread) else { return };
        let mut looks = Looks::default();
        loop {
            let due = Instant::now() + LOOK;
            sleep_until(due).await;
            let late = due.elapsed();
            last.store(u64::try_from(late.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
            match looks.add(late > LATE) {
                Some(true) => {
                    self.late.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(
                        "requests wait {} ms and longer for thread {thread}: its processor has more \
                         to do than it can; give it more of them, and --threads, or ask less",
                        late.as_millis()
                    );
                }
                Some(false) => {
                    self.late.fetch_sub(1, Ordering::Relaxed);
                    tracing::info!("thread {thread} answers in time again");
                }
                None => {}
            }
        }
    }
}

/// What a thread's looks have shown.
#[derive(Debug, Default)]
struct Looks {
    is_late: bool,
    /// Looks in a row that showed the contrary.
    others: u32,
}

impl Looks {
    /// Adds a look; returns whether the thread is late, if that changed.
    fn add(&mut self, late: bool) -> Option<bool> {
        self.others = if late == self.is_late { 0 } else { self.others + 1 };
        if self.others < if self.is_late { ENDS } else { BEGINS } {
            return None;
        }
        *self = Self { is_late: late, others: 0 };
        Some(late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_thread_that_does_something_else_is_late() {
        let lateness = Lateness::new(2);
        let looked = async {
            tokio::task::yield_now().await;
            std::thread::sleep(LOOK + LATE * 2);
            while lateness.worst() <= LATE {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = lateness.watch(1) => unreachable!("it never ends"),
            () = looked => {}
        }
    }

    /// One late look is no overload, and one in time is not its end.
    #[test]
    fn what_is_seen_once_is_no_news() {
        let mut looks = Looks::default();
        let mut add = |late, times| (0..times).map(|_| looks.add(late)).collect::<Vec<_>>();
        assert_eq!(add(true, BEGINS - 1), [None; 9]);
        assert_eq!(add(false, 1), [None]);
        assert_eq!(add(true, BEGINS).last(), Some(&Some(true)));
        assert_eq!(add(true, 1), [None]);
        assert_eq!(add(false, ENDS - 1), [None; 49]);
        assert_eq!(add(true, 1), [None]);
        assert_eq!(add(false, ENDS).last(), Some(&Some(false)));
    }
}
