//! The table that is redrawn while the sandbox runs, on standard error.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::termios::tcgetwinsize;

use crate::generator::Generator;
use crate::limiter::Limiter;
use crate::sandbox::daemon;
use crate::sandbox::expect::Expectation;
use crate::sandbox::format::{bar, error_percent, percent, table, thousands};
use crate::sandbox::plan::Sender;

/// Below this many expected frames, an error in percent says more about the moment of asking than
/// about the limiter.
const ENOUGH: u64 = 200;

const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";
const CLEAR_BELOW: &str = "\x1b[J";

/// The live view.
#[derive(Debug)]
pub struct Live {
    terminal: bool,
    started: Instant,
    duration: Duration,
    /// Number of lines of the last drawing, to go back over.
    lines: usize,
}

impl Live {
    /// A view of a run of `duration` that starts now.
    pub fn start(duration: Duration) -> Self {
        let terminal = stderr().is_terminal();
        if terminal {
            eprint!("{HIDE_CURSOR}");
        }
        Self { terminal, started: Instant::now(), duration, lines: 0 }
    }

    /// Time from one drawing to the next.
    pub fn interval(&self) -> Duration {
        Duration::from_millis(if self.terminal { 250 } else { 1000 })
    }

    /// Asks for all counts and draws the table.
    ///
    /// # Errors
    ///
    /// When the daemon does not answer.
    pub fn draw(
        &mut self,
        generator: &Generator,
        limiter: &Limiter,
        senders: &[Sender],
        expectations: &mut [Expectation],
    ) -> Result<()> {
        let mut rows = Vec::new();
        let mut offered = 0;
        for (n, (sender, expectation)) in senders.iter().zip(expectations).enumerate() {
            expectation.offer(&generator.times_after(n, expectation.offered()))?;
            let counted = daemon::counted(limiter, sender)?;
            let expected = expectation.delivered();
            let sent = u64::try_from(expectation.offered())?;
            let error = if expected < ENOUGH {
                "-".to_owned()
            } else {
                percent(error_percent(counted.passed, expected))
            };
            rows.push(vec![
                sender.text.clone(),
                sender.role.text().to_owned(),
                thousands(sent),
                thousands(counted.passed),
                thousands(counted.dropped),
                sender.rule.text.clone(),
                error,
            ]);
            offered += sent;
        }
        let elapsed = self.started.elapsed().min(self.duration);
        let progress = format!(
            "{:4.1} s of {} s   {} frames offered",
            elapsed.as_secs_f64(),
            self.duration.as_secs(),
            thousands(offered)
        );
        if self.terminal {
            let header = ["source", "sends", "offered", "passed", "dropped", "limit", "error"];
            let done = elapsed.as_secs_f64() / self.duration.as_secs_f64();
            let table = table(&header, &[2, 3, 4, 6], rows);
            let progress = format!(" {} {progress}", bar(done, 30));
            self.redraw(&if fits(&table) { format!("{table}\n{progress}") } else { progress });
        } else {
            eprintln!("{progress}");
        }
        Ok(())
    }

    fn redraw(&mut self, text: &str) {
        let mut out = String::new();
        if self.lines > 0 {
            out = format!("\x1b[{}A\r{CLEAR_BELOW}", self.lines);
        }
        out.push_str(text);
        out.push('\n');
        self.lines = text.lines().count();
        // Written in one piece, so that nothing flickers. A terminal that is gone is no reason to
        // stop.
        let _gone = stderr().write_all(out.as_bytes());
    }
}

/// Returns true if the terminal is wide enough; wrapped lines could not be drawn over.
fn fits(table: &str) -> bool {
    let width = table.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    tcgetwinsize(stderr()).is_ok_and(|size| usize::from(size.ws_col) >= width)
}

impl Drop for Live {
    fn drop(&mut self) {
        if self.terminal {
            // The final table takes its place.
            let up = if self.lines > 0 { format!("\x1b[{}A\r", self.lines) } else { String::new() };
            eprint!("{up}{CLEAR_BELOW}{SHOW_CURSOR}");
        }
    }
}
