//! What limits nothing because proxy and rule file do not match: requests without a rule, checks
//! that are refused. Then everything passes, or nothing, so it is counted and reported.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use limiter_rules::file::requests::MAX_DEPTH;

use crate::reports::unsaid::quoted;
use crate::rules::EntryOf;

/// Half of the time for which it is reported.
const HALF: Duration = Duration::from_hours(1);

/// Times between two lines of the log: the first one, and what it becomes with each line.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGER: u32 = 6;

/// Requests: all, those with an unmatched descriptor, and those without any matched one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) asked: u64,
    pub(crate) some: u64,
    pub(crate) none: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Tally {
    asked: AtomicU64,
    some: AtomicU64,
    none: AtomicU64,
    /// Descriptors that met nothing.
    parts: AtomicU64,
    /// True if the latest example is old.
    is_old: AtomicBool,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    latest: String,
    /// Counts at the ends of the two halves before this one.
    halves: [Counted; 2],
    turned: Option<Instant>,
    /// The latest line of the log, the pause after it, and what had been counted.
    said: Option<(Instant, Duration)>,
    said_of: u64,
}

impl Tally {
    /// Counts a request, of which so many of its parts met nothing.
    pub(crate) fn count(&self, of: usize, unmet: usize, latest: impl FnOnce() -> String) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if unmet == 0 {
            return;
        }
        self.parts.fetch_add(u64::try_from(unmet).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.some.fetch_add(1, Ordering::Relaxed);
        if unmet == of {
            self.none.fetch_add(1, Ordering::Relaxed);
        }
        // One example a second is enough.
        if self.some.load(Ordering::Relaxed) == 1 || self.is_old.swap(false, Ordering::Relaxed) {
            self.told().latest = latest();
        }
    }

    pub(crate) fn all(&self) -> Counted {
        Counted {
            asked: self.asked.load(Ordering::Relaxed),
            some: self.some.load(Ordering::Relaxed),
            none: self.none.load(Ordering::Relaxed),
        }
    }

    /// Descriptors that met nothing, since the start.
    pub(crate) fn parts(&self) -> u64 {
        self.parts.load(Ordering::Relaxed)
    }

    /// Counts of the last one or two hours, and an example.
    pub(crate) fn lately(&self) -> (Counted, String) {
        let (now, told) = (self.all(), self.told());
        let [before, _] = told.halves;
        let lately = Counted {
            asked: now.asked.saturating_sub(before.asked),
            some: now.some.saturating_sub(before.some),
            none: now.none.saturating_sub(before.none),
        };
        (lately, told.latest.clone())
    }

    /// True if a line of the log is due. Called from time to time.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.is_old.store(true, Ordering::Relaxed);
        let (counted, mut told) = (self.all(), self.told());
        let turned = *told.turned.get_or_insert(now);
        if now.saturating_duration_since(turned) >= HALF {
            told.turned = Some(now);
            told.halves = [told.halves[1], counted];
        }
        let pause = match told.said {
            _ if counted.some == told.said_of => return false,
            Some((at, pause)) if now.saturating_duration_since(at) < pause => return false,
            Some((_, pause)) => (pause * LONGER).min(HALF),
            None => FIRST_PAUSE,
        };
        (told.said, told.said_of) = (Some((now, pause)), counted.some);
        true
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The keys of a descriptor, as somebody sent them.
pub(crate) fn keys(entries: &[EntryOf<'_>]) -> String {
    let plain = |key: &str| key.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
    let shown = |(key, _): &EntryOf<'_>| match *key {
        key if plain(key) && key.len() <= 64 => key.to_owned(),
        key => quoted(key),
    };
    let keys: Vec<String> = entries.iter().take(MAX_DEPTH).map(shown).collect();
    keys.join(" ")
}

/// `1 request`, `20 requests`.
pub(crate) fn requests(count: u64) -> String {
    format!("{count} request{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twenty of twenty, then one that fits, and two hours later nothing is left to say.
    #[test]
    fn what_meets_nothing_is_counted_for_two_hours_at_most() {
        let (tally, begun) = (Tally::default(), Instant::now());
        for number in 0..20 {
            tally.count(2, 2, || format!("number {number}"));
        }
        tally.count(2, 1, || "half".to_owned());
        tally.count(2, 0, || unreachable!());
        let counted = Counted { asked: 22, some: 21, none: 20 };
        // The example is the first of its second.
        assert_eq!(tally.lately(), (counted, "number 0".to_owned()));
        assert_eq!(tally.parts(), 41);
        assert!(tally.is_due(begun));
        tally.count(1, 1, || "later".to_owned());
        assert_eq!(tally.lately().1, "later");
        for (after, is_due) in [(9, false), (10, true), (11, false), (7200, false), (7200, false)] {
            assert_eq!(tally.is_due(begun + Duration::from_secs(after)), is_due, "{after}");
        }
        assert_eq!(tally.lately().0.some, 22);
        assert!(!tally.is_due(begun + Duration::from_hours(3)));
        assert_eq!(tally.lately().0, Counted::default());
        assert_eq!(tally.all(), Counted { asked: 23, some: 22, none: 21 });
    }

    /// Who asks wrongly all the time gets a line an hour in the end.
    #[test]
    fn lines_of_the_log_become_rare() {
        let (tally, begun) = (Tally::default(), Instant::now());
        let mut said = Vec::new();
        for second in 0..20_000 {
            tally.count(1, 1, String::new);
            if tally.is_due(begun + Duration::from_secs(second)) {
                said.push(second);
            }
        }
        assert_eq!(said, [0, 10, 70, 430, 2590, 6190, 9790, 13_390, 16_990]);
    }
}
