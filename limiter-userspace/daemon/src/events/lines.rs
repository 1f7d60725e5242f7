//! Lines about episodes in the daemon's own log.

use limiter_api::events::{Episode, Line, packet};
use limiter_api::render::seconds;
use limiter_text::plain::clean;

/// Most lines in the log at once.
const LOG_BURST: u64 = 20;

/// Nanoseconds per further line.
const LOG_EVERY: u64 = 3_000_000_000;

/// Allows a few lines at once, and then a few a minute.
#[derive(Debug, Default)]
pub(super) struct LogBudget {
    /// Time at which the budget is full again, in nanoseconds.
    full_at: u64,
    pub(super) left_out: u64,
    pub(super) left_out_in_all: u64,
}

impl LogBudget {
    pub(super) fn admit(&mut self, now: u64) -> bool {
        let next = self.full_at.max(now) + LOG_EVERY;
        if next > now + LOG_BURST * LOG_EVERY {
            self.left_out += 1;
            self.left_out_in_all += 1;
            return false;
        }
        self.full_at = next;
        true
    }
}

/// Writes a line about an episode.
pub(super) fn say(line: &Line) {
    let rule = |at: &Episode| match (&at.rule_name, &at.rule) {
        (Some(name), Some(rule)) => format!(" by the rule {} for {rule}", clean(name)),
        (None, Some(rule)) => format!(" by the rule for {rule}"),
        (_, None) => String::new(),
    };
    let drops = |at: &Episode| if at.would_drop { "would drop" } else { "drops" };
    let packet = |at: &Episode| packet(&at.last);
    let sum = |at: &Episode| {
        format!("{}, {} reported, last {}", seconds(at.seconds), at.sampled, packet(at))
    };
    let (begin, at, facts, goes_on) = match line {
        Line::Start(at) => ("", at, packet(at), true),
        Line::Still(at) => ("still ", at, format!("for {}", sum(at)), true),
        Line::End(at) => ("no more ", at, format!("it was {}", sum(at)), false),
        // Full tables are logged elsewhere.
        Line::Drop(_) | Line::TableFull(_) | Line::Lost { .. } => return,
    };
    let text = format!("{begin}{}: {} ({}){}: {facts}", drops(at), at.source, at.reason, rule(at));
    if goes_on {
        tracing::warn!("{text}");
    } else {
        tracing::info!("{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_has_a_burst_and_then_a_line_now_and_then() {
        let mut log = LogBudget::default();
        let admitted = |log: &mut LogBudget, now| (0..100).filter(|_| log.admit(now)).count();
        assert_eq!(admitted(&mut log, 1_000), 20);
        assert_eq!(log.left_out, 80);
        assert_eq!(admitted(&mut log, 1_000 + 2 * LOG_EVERY), 2);
    }
}
