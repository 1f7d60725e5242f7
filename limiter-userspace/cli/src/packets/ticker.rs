//! Long readings of live traffic: how far they are, on a terminal.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use limiter_api::render::number;

pub(crate) const PAUSE: Duration = Duration::from_millis(200);

/// A line about a reading, in the place of the one before.
pub(crate) fn words(count: u64, noun: &str, percent: Option<u64>) -> String {
    let share = percent.map_or_else(String::new, |percent| format!(", {percent} %"));
    format!("\r{} {noun}{share} ", number(count))
}

/// Progress of live traffic, which may be slow in coming: a line by the clock, on a terminal, until
/// it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Ticker {
    packets: Arc<AtomicU64>,
    /// Sender whose end stops the lines; `None` if no lines are shown.
    thread: Option<(mpsc::Sender<()>, thread::JoinHandle<()>)>,
}

impl Ticker {
    /// Begins, for a reading of a known length if `time` is given. `on_terminal` is false if
    /// something else is printed meanwhile.
    pub(crate) fn begin(time: Option<Duration>, on_terminal: bool) -> Self {
        let mut ticker = Self::default();
        if on_terminal && io::stderr().is_terminal() {
            let packets = Arc::clone(&ticker.packets);
            let (end, ended) = mpsc::channel::<()>();
            let spawned = thread::Builder::new().spawn(move || tick(time, &packets, &ended));
            // Without a thread there are no lines, and nothing else is missing.
            ticker.thread = spawned.ok().map(|thread| (end, thread));
        }
        ticker
    }

    pub(crate) fn add(&self, packets: u64) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.thread.take() {
            drop(end);
            // A thread that panicked has nothing to say.
            drop(thread.join());
        }
    }
}

/// Reports the progress until the reading ends.
fn tick(time: Option<Duration>, packets: &AtomicU64, ended: &mpsc::Receiver<()>) {
    let began = Instant::now();
    let mut stderr = io::stderr();
    while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
        let share = time.map(|time| percent(began.elapsed(), time));
        let words = words(packets.load(Ordering::Relaxed), "packets", share);
        if stderr.write_all(words.as_bytes()).and_then(|()| stderr.flush()).is_err() {
            return;
        }
    }
    // A terminal that is gone gets nothing.
    drop(write!(stderr, "\r{:40}\r", "").and_then(|()| stderr.flush()));
}

/// Percentage of the time that is over.
fn percent(elapsed: Duration, time: Duration) -> u64 {
    let share = elapsed.as_millis().saturating_mul(100) / time.as_millis().max(1);
    u64::try_from(share.min(100)).unwrap_or(100)
}
