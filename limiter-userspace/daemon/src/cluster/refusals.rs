//! Changes of other nodes that were not taken over: all are counted, the latest are kept, and they
//! are logged at a bounded rate, because a writer to the store can write very many.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use limiter_cluster::status::RefusedChange;
use limiter_text::plain::clean;

/// Number of refused changes that are kept.
const KEPT: usize = 10;
/// Shortest time between two lines in the log.
const APART: Duration = Duration::from_secs(10);
/// Time for which `limiter status` warns about the latest refusal.
const WARNED: Duration = Duration::from_mins(10);

#[derive(Debug, Default)]
pub(crate) struct Refusals {
    count: u64,
    latest: VecDeque<(Instant, RefusedChange)>,
    /// Count at the last log line, and the time of that line.
    reported: (u64, Option<Instant>),
}

impl Refusals {
    /// Notes `count` refused changes, of which `some` are given.
    pub(crate) fn note(&mut self, count: u64, some: impl IntoIterator<Item = RefusedChange>) {
        let now = Instant::now();
        self.count = self.count.saturating_add(count);
        for mut refused in some {
            // Names and texts come from the store, so they are cleaned.
            refused.change = clean(&refused.change);
            self.latest.push_back((now, refused));
            if self.latest.len() > KEPT {
                self.latest.pop_front();
            }
        }
    }

    /// Logs new refusals, if a line is due.
    pub(crate) fn log(&mut self) {
        let (before, at) = self.reported;
        let is_early = at.is_some_and(|at| at.elapsed() < APART);
        if self.count == before || is_early {
            return;
        }
        self.reported = (self.count, Some(Instant::now()));
        if let Some((_, RefusedChange { change, why, .. })) = self.latest.back() {
            match self.count - before {
                1 => tracing::warn!("not taken over from another node: {change}: {why}"),
                count => tracing::warn!(
                    "not taken over from another node: {change}: {why}; and {} more changes",
                    count - 1
                ),
            }
        }
    }

    /// Number of refused changes since the daemon's start.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// The latest refusals, the newest first, with the time since each.
    pub(crate) fn latest(&self) -> impl Iterator<Item = (Duration, &RefusedChange)> {
        self.latest.iter().rev().map(|(at, refused)| (at.elapsed(), refused))
    }

    /// Warning for `limiter status`, while the latest refusal is recent.
    pub(crate) fn warning(&self) -> Option<String> {
        let (since, RefusedChange { change, why, .. }) = self.latest().next()?;
        (since < WARNED).then(|| {
            format!(
                "{} changes by other nodes were not taken over since the daemon's start, the \
                 latest is `{change}`: {why}: `limiter cluster` lists them; if no node made it, \
                 somebody else writes to the store",
                self.count
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(number: u8) -> RefusedChange {
        let change = format!("deny 192.0.2.{number}/32\u{1b}[2J");
        RefusedChange { change, node: None, why: "it is not signed".to_owned() }
    }

    #[test]
    fn the_latest_are_kept_and_all_are_counted() {
        let mut refusals = Refusals::default();
        assert_eq!((refusals.warning(), refusals.count()), (None, 0));
        refusals.note(200, (0..12).map(refused));
        refusals.log();
        assert_eq!((refusals.count(), refusals.latest().count()), (200, KEPT));
        let (_, newest) = refusals.latest().next().unwrap();
        assert!(newest.change.starts_with("deny 192.0.2.11/32"), "{newest:?}");
        let warning = refusals.warning().unwrap();
        assert!(warning.starts_with("200 changes"), "{warning}");
        assert!(!warning.contains('\u{1b}'), "{warning}");
        // The next line has to wait.
        refusals.note(1, [refused(13)]);
        refusals.log();
        assert_eq!(refusals.reported.0, 200);
    }
}
