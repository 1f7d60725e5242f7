//! Long readings: how far they are, on a terminal, and an end at Ctrl-C that keeps what was read.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use signal_hook::consts::SIGINT;

use super::ticker::{PAUSE, words};

/// Packets, or requests, between two looks at the clock.
const LOOK: u64 = 1024;

/// Words about a reading that Ctrl-C ended.
pub(crate) const INTERRUPTED: &str = "interrupted: what is printed is of what was read before";

#[derive(Debug)]
pub(crate) struct Progress {
    /// `packets` or `requests`.
    noun: &'static str,
    /// Time of the last line; `None` if no lines are shown.
    shown: Option<Instant>,
    /// True if a line stands on the terminal.
    stands: bool,
    interrupted: Arc<AtomicBool>,
}

impl Progress {
    /// Begins to watch for SIGINT: the first one ends the reading, a second one the process. If
    /// watching fails, the first one ends the process. `on_terminal` is false if something else is
    /// printed meanwhile.
    pub(crate) fn begin(on_terminal: bool, noun: &'static str) -> Self {
        let interrupted = Arc::new(AtomicBool::new(false));
        let flag = || Arc::clone(&interrupted);
        // In this order: the first signal finds the flag down.
        let watched =
            signal_hook::flag::register_conditional_shutdown(SIGINT, INTERRUPTED_TWICE, flag())
                .and_then(|_| signal_hook::flag::register(SIGINT, flag()));
        // SIGINT is one that can be watched for, so this does not happen; nothing depends on it.
        drop(watched);
        let shown = (on_terminal && io::stderr().is_terminal()).then(Instant::now);
        Self { noun, shown, stands: false, interrupted }
    }

    /// Reports progress after so many packets; false if the reading is to end. `percent` is how
    /// much of the file was read.
    pub(crate) fn goes_on(&mut self, packets: u64, percent: Option<u64>) -> bool {
        if packets.is_multiple_of(LOOK)
            && let Some(last) = self.shown
            && last.elapsed() >= PAUSE
        {
            self.report(format_args!("{}", words(packets, self.noun, percent)));
            self.shown = Some(Instant::now());
            self.stands = true;
        }
        !self.interrupted.load(Ordering::Relaxed)
    }

    pub(crate) fn end(&mut self) {
        if std::mem::take(&mut self.stands) {
            self.report(format_args!("\r{:40}\r", ""));
        }
    }

    /// Writes to the terminal; one that is gone gets nothing.
    fn report(&mut self, text: std::fmt::Arguments<'_>) {
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

/// Exit code after a second SIGINT, as shells have it for one.
const INTERRUPTED_TWICE: i32 = 130;
