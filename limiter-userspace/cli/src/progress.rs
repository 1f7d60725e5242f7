//! Long readings: how far they are, on a terminal, and an end at Ctrl-C that keeps what was read.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use limiter_daemon::render::number;
use signal_hook::consts::SIGINT;

/// Time between two lines.
const PAUSE: Duration = Duration::from_millis(200);

/// Packets between two looks at the clock.
const LOOK: u64 = 1024;

/// Words about a reading that Ctrl-C ended.
pub(super) const INTERRUPTED: &str =
    "interrupted: what is printed is of the packets that were read before";

/// Progress of a reading.
#[derive(Debug)]
pub(super) struct Progress {
    /// Time of the last line; none where nobody is shown any.
    shown: Option<Instant>,
    /// True if a line stands on the terminal.
    stands: bool,
    interrupted: Arc<AtomicBool>,
}

impl Progress {
    /// Begins to watch for SIGINT: the first one ends the reading, a second one the process. Where
    /// it cannot be watched for, the first one ends the process, as without this. `on_terminal` is
    /// false where something else is printed meanwhile.
    pub(super) fn begin(on_terminal: bool) -> Self {
        let interrupted = Arc::new(AtomicBool::new(false));
        let flag = || Arc::clone(&interrupted);
        // In this order: the first signal finds the flag down.
        let watched =
            signal_hook::flag::register_conditional_shutdown(SIGINT, INTERRUPTED_TWICE, flag())
                .and_then(|_| signal_hook::flag::register(SIGINT, flag()));
        // SIGINT is one that can be watched for, so this does not happen; nothing depends on it.
        drop(watched);
        let shown = (on_terminal && io::stderr().is_terminal()).then(Instant::now);
        Self { shown, stands: false, interrupted }
    }

    /// Tells of a reading after so many packets; false if it is to end. `percent` is how much of
    /// the file was read.
    pub(super) fn goes_on(&mut self, packets: u64, percent: Option<u64>) -> bool {
        if packets.is_multiple_of(LOOK)
            && let Some(last) = self.shown
            && last.elapsed() >= PAUSE
        {
            self.tell(format_args!("{}", words(packets, percent)));
            self.shown = Some(Instant::now());
            self.stands = true;
        }
        !self.interrupted.load(Ordering::Relaxed)
    }

    /// Takes the line away.
    pub(super) fn end(&mut self) {
        if std::mem::take(&mut self.stands) {
            self.tell(format_args!("\r{:40}\r", ""));
        }
    }

    /// Writes to the terminal; one that is gone is told nothing.
    fn tell(&mut self, text: std::fmt::Arguments<'_>) {
        let mut stderr = io::stderr().lock();
        if stderr.write_fmt(text).and_then(|()| stderr.flush()).is_err() {
            self.shown = None;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

/// A line about a reading, in the place of the one before.
fn words(packets: u64, percent: Option<u64>) -> String {
    let share = percent.map_or_else(String::new, |percent| format!(", {percent} %"));
    format!("\r{} packets{share} ", number(packets))
}

/// Progress of live traffic, which may be slow in coming: a line by the clock, on a terminal, until
/// it is dropped.
#[derive(Debug, Default)]
pub(super) struct Ticker {
    packets: Arc<AtomicU64>,
    /// Sender whose end is the end of the lines; none where nobody is shown any.
    thread: Option<(mpsc::Sender<()>, thread::JoinHandle<()>)>,
}

impl Ticker {
    /// Begins, for a reading of a length of time, if that has one. `on_terminal` is false where
    /// something else is printed meanwhile.
    pub(super) fn begin(time: Option<Duration>, on_terminal: bool) -> Self {
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

    /// Counts packets.
    pub(super) fn add(&self, packets: u64) {
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

/// Tells how far it is until there is an end.
fn tick(time: Option<Duration>, packets: &AtomicU64, ended: &mpsc::Receiver<()>) {
    let began = Instant::now();
    let mut stderr = io::stderr();
    while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
        let share = time.map(|time| percent(began.elapsed(), time));
        let words = words(packets.load(Ordering::Relaxed), share);
        if stderr.write_all(words.as_bytes()).and_then(|()| stderr.flush()).is_err() {
            return;
        }
    }
    // A terminal that is gone is told nothing.
    drop(write!(stderr, "\r{:40}\r", "").and_then(|()| stderr.flush()));
}

/// How much of the time is over.
fn percent(elapsed: Duration, time: Duration) -> u64 {
    let share = elapsed.as_millis().saturating_mul(100) / time.as_millis().max(1);
    u64::try_from(share.min(100)).unwrap_or(100)
}

/// Exit code after a second SIGINT, as shells have it for one.
const INTERRUPTED_TWICE: i32 = 130;
