//! Contact to the store: calls that were answered and calls that failed.

use std::time::{Duration, Instant, SystemTime};

use super::status::{Contact, Notice, Status};

/// Time without an answer after which a store that failed is lost.
const LOST_AFTER: Duration = Duration::from_secs(1);
/// Time for which the longest round trip is kept, and another one.
const MINUTE: Duration = Duration::from_secs(60);

/// Calls to the store, and what came of them.
#[derive(Debug)]
pub(super) struct Calls {
    contact: Contact,
    last_error: Option<(SystemTime, String)>,
    calls: u64,
    failed: u64,
    round_trip: Option<Duration>,
    /// Longest of this minute, and of the one before.
    worst: [Option<Duration>; 2],
    minute: Instant,
    last_answer: Instant,
    /// True if a call failed since.
    has_failed: bool,
    clock_ahead: Option<i64>,
}

impl Calls {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            contact: Contact::Starting,
            last_error: None,
            calls: 0,
            failed: 0,
            round_trip: None,
            worst: [None; 2],
            minute: now,
            last_answer: now,
            has_failed: false,
            clock_ahead: None,
        }
    }

    /// A call was answered after `took`: the news, if there was no contact.
    pub(super) fn answered(&mut self, took: Duration) -> Option<Notice> {
        let now = Instant::now();
        self.calls += 1;
        self.round_trip = Some(took);
        if now.duration_since(self.minute) >= MINUTE {
            self.worst = [None, self.worst[0]];
            self.minute = now;
        }
        self.worst[0] = self.worst[0].max(Some(took));
        let after = now.duration_since(self.last_answer);
        self.last_answer = now;
        self.has_failed = false;
        match self.contact {
            Contact::Connected(_) => None,
            Contact::Starting => {
                self.contact = Contact::Connected(SystemTime::now());
                None
            }
            Contact::CutOff(_) => {
                self.contact = Contact::Connected(SystemTime::now());
                Some(Notice::Regained { after })
            }
        }
    }

    /// A call failed.
    pub(super) fn failed(&mut self, error: String) {
        self.calls += 1;
        self.failed += 1;
        self.has_failed = true;
        self.last_error = Some((SystemTime::now(), error));
    }

    /// The store's clock was `clock` microseconds since 1970 at the answer of a call that took
    /// `took`.
    pub(super) fn clock(&mut self, clock: u64, took: Duration) {
        let Ok(here) = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) else { return };
        let here = here.saturating_sub(took / 2).as_micros();
        let ahead = i128::from(clock) - i128::try_from(here).unwrap_or(i128::MAX);
        self.clock_ahead = i64::try_from(ahead).ok();
    }

    /// To be called now and then: the news, if the store is lost by now.
    pub(super) fn tick(&mut self) -> Option<Notice> {
        let silent = self.last_answer.elapsed();
        if matches!(self.contact, Contact::CutOff(_)) || !self.has_failed || silent < LOST_AFTER {
            return None;
        }
        let since = SystemTime::now().checked_sub(silent).unwrap_or(SystemTime::UNIX_EPOCH);
        self.contact = Contact::CutOff(since);
        let error = self.last_error.as_ref().map_or_else(String::new, |(_, error)| error.clone());
        Some(Notice::Lost { error })
    }

    /// Puts all of it into a status.
    pub(super) fn fill(&self, status: &mut Status) {
        status.contact = self.contact;
        status.last_error.clone_from(&self.last_error);
        status.calls = self.calls;
        status.failed = self.failed;
        status.round_trip = self.round_trip;
        status.worst_round_trip = self.worst.into_iter().max().flatten();
        status.clock_ahead = self.clock_ahead;
    }
}
