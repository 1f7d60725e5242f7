//! Contact to the store: calls that were answered and calls that failed.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

use super::status::{Contact, Notice, Status};
use super::store::Foreign;

/// Time without an answer after which a store that failed is lost.
const LOST_AFTER: Duration = Duration::from_secs(1);
/// Time for which the longest round trip is kept, and another one.
const MINUTE: Duration = Duration::from_mins(1);

/// Kind of a call that must not fail for long. A server may refuse one of them alone: what is full
/// still answers questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Limits,
    Heartbeat,
    /// A question for news: its answer says nothing of the others.
    Question,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    last_answer: Instant,
    /// True if a call failed since.
    has_failed: bool,
}

/// Calls to the store, and what came of them.
#[derive(Debug)]
pub(super) struct Calls {
    contact: Contact,
    last_error: Option<(SystemTime, String)>,
    made: u64,
    failed: u64,
    round_trip: Option<Duration>,
    /// Longest of this minute, and of the one before.
    worst: [Option<Duration>; 2],
    minute: Instant,
    limits: Line,
    nodes: Line,
    clock_ahead: Option<i64>,
    /// Numbers of limits whose keys somebody else made, which was reported.
    foreign: BTreeSet<u64>,
}

impl Calls {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        let line = Line { last_answer: now, has_failed: false };
        Self {
            contact: Contact::Starting,
            last_error: None,
            made: 0,
            failed: 0,
            round_trip: None,
            worst: [None; 2],
            minute: now,
            limits: line,
            nodes: line,
            clock_ahead: None,
            foreign: BTreeSet::new(),
        }
    }

    /// A call was answered after `took`: the news, if there was no contact.
    pub(super) fn answered(&mut self, kind: Kind, took: Duration) -> Option<Notice> {
        let now = Instant::now();
        self.made += 1;
        self.round_trip = Some(took);
        if now.duration_since(self.minute) >= MINUTE {
            self.worst = [None, self.worst[0]];
            self.minute = now;
        }
        self.worst[0] = self.worst[0].max(Some(took));
        let line = Line { last_answer: now, has_failed: false };
        match kind {
            Kind::Limits => self.limits = line,
            Kind::Heartbeat => self.nodes = line,
            Kind::Question => {}
        }
        self.regained()
    }

    /// The news, if there is contact again.
    fn regained(&mut self) -> Option<Notice> {
        if self.limits.has_failed || self.nodes.has_failed {
            return None;
        }
        let now = SystemTime::now();
        match std::mem::replace(&mut self.contact, Contact::Connected(now)) {
            Contact::CutOff(since) => {
                let after = now.duration_since(since).unwrap_or_default();
                Some(Notice::Regained { after })
            }
            Contact::Starting => None,
            connected @ Contact::Connected(_) => {
                self.contact = connected;
                None
            }
        }
    }

    pub(super) fn failed(&mut self, kind: Kind, error: String) {
        self.made += 1;
        self.failed += 1;
        match kind {
            Kind::Limits => self.limits.has_failed = true,
            Kind::Heartbeat | Kind::Question => self.nodes.has_failed = true,
        }
        self.last_error = Some((SystemTime::now(), error));
    }

    /// A call was answered, and the key of limit `number` in it: the news, where it is somebody
    /// else's and was not when it was asked for before.
    pub(super) fn asked(&mut self, number: u64, foreign: Option<&Foreign>) -> Option<Notice> {
        let Some(foreign) = foreign else {
            self.foreign.remove(&number);
            return None;
        };
        self.last_error = Some((SystemTime::now(), foreign.to_string()));
        let is_new = self.foreign.insert(number);
        is_new.then(|| Notice::Foreign { error: foreign.to_string() })
    }

    /// There are no limits any more: that calls for them failed says nothing.
    pub(super) fn no_limits(&mut self) -> Option<Notice> {
        self.limits.has_failed = false;
        matches!(self.contact, Contact::CutOff(_)).then(|| self.regained())?
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
        let silent = |line: Line| line.has_failed.then(|| line.last_answer.elapsed());
        let silent = silent(self.limits).max(silent(self.nodes))?;
        if matches!(self.contact, Contact::CutOff(_)) || silent < LOST_AFTER {
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
        status.calls = self.made;
        status.failed = self.failed;
        status.round_trip = self.round_trip;
        status.worst_round_trip = self.worst.into_iter().max().flatten();
        status.clock_ahead = self.clock_ahead;
    }
}
