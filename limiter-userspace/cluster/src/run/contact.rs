//! Contact to the store, judged by calls that were answered and calls that failed.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

use crate::status::{Contact, Notice, Status};
use crate::store::Foreign;

/// Time without an answer after which a failing store counts as lost.
const LOST_AFTER: Duration = Duration::from_secs(1);
/// Period of the longest round trip; the previous period is kept as well.
const MINUTE: Duration = Duration::from_mins(1);

/// Kinds of calls that must not fail for long. A server may reject only one kind: a full server
/// still answers questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Limits,
    Heartbeat,
    /// A question for news. Its answer shows nothing about the other kinds.
    Question,
}

#[derive(Clone, Copy, Debug)]
struct KindState {
    last_answer: Instant,
    /// True if a call has failed since the last answer.
    has_failed: bool,
}

#[derive(Debug)]
pub(crate) struct Calls {
    contact: Contact,
    last_error: Option<(SystemTime, String)>,
    made: u64,
    failed: u64,
    round_trip: Option<Duration>,
    /// Longest round trip of this minute, and of the previous one.
    worst: [Option<Duration>; 2],
    minute: Instant,
    limits: KindState,
    nodes: KindState,
    clock_ahead: Option<i64>,
    /// Numbers of limits whose foreign keys were reported.
    foreign: BTreeSet<u64>,
}

impl Calls {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        let state = KindState { last_answer: now, has_failed: false };
        Self {
            contact: Contact::Starting,
            last_error: None,
            made: 0,
            failed: 0,
            round_trip: None,
            worst: [None; 2],
            minute: now,
            limits: state,
            nodes: state,
            clock_ahead: None,
            foreign: BTreeSet::new(),
        }
    }

    /// Records a call that was answered after `took`. Returns a notice if there was no contact
    /// before.
    pub(crate) fn answered(&mut self, kind: Kind, took: Duration) -> Option<Notice> {
        let now = Instant::now();
        self.made += 1;
        self.round_trip = Some(took);
        if now.duration_since(self.minute) >= MINUTE {
            self.worst = [None, self.worst[0]];
            self.minute = now;
        }
        self.worst[0] = self.worst[0].max(Some(took));
        let state = KindState { last_answer: now, has_failed: false };
        match kind {
            Kind::Limits => self.limits = state,
            Kind::Heartbeat => self.nodes = state,
            Kind::Question => {}
        }
        self.regained()
    }

    /// Returns a notice if contact is restored.
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

    pub(crate) fn failed(&mut self, kind: Kind, error: String) {
        self.made += 1;
        self.failed += 1;
        match kind {
            Kind::Limits => self.limits.has_failed = true,
            Kind::Heartbeat | Kind::Question => self.nodes.has_failed = true,
        }
        self.last_error = Some((SystemTime::now(), error));
    }

    /// Records an answer for the key of limit `number`. Returns a notice if the key is foreign now
    /// and was not at the last request.
    pub(crate) fn asked(&mut self, number: u64, foreign: Option<&Foreign>) -> Option<Notice> {
        let Some(foreign) = foreign else {
            self.foreign.remove(&number);
            return None;
        };
        self.last_error = Some((SystemTime::now(), foreign.to_string()));
        let is_new = self.foreign.insert(number);
        is_new.then(|| Notice::Foreign { error: foreign.to_string() })
    }

    /// Records that there are no more limits: failed calls for them no longer matter.
    pub(crate) fn no_limits(&mut self) -> Option<Notice> {
        self.limits.has_failed = false;
        matches!(self.contact, Contact::CutOff(_)).then(|| self.regained())?
    }

    /// Records the store's clock, in microseconds since 1970, from the answer of a call that took
    /// `took`.
    pub(crate) fn clock(&mut self, clock: u64, took: Duration) {
        let Ok(here) = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) else { return };
        let here = here.saturating_sub(took / 2).as_micros();
        let ahead = i128::from(clock) - i128::try_from(here).unwrap_or(i128::MAX);
        self.clock_ahead = i64::try_from(ahead).ok();
    }

    /// Call this regularly. Returns a notice if the store counts as lost now.
    pub(crate) fn tick(&mut self) -> Option<Notice> {
        let silent = |state: KindState| state.has_failed.then(|| state.last_answer.elapsed());
        let silent = silent(self.limits).max(silent(self.nodes))?;
        if matches!(self.contact, Contact::CutOff(_)) || silent < LOST_AFTER {
            return None;
        }
        let since = SystemTime::now().checked_sub(silent).unwrap_or(SystemTime::UNIX_EPOCH);
        self.contact = Contact::CutOff(since);
        let error = self.last_error.as_ref().map_or_else(String::new, |(_, error)| error.clone());
        Some(Notice::Lost { error })
    }

    pub(crate) fn fill(&self, status: &mut Status) {
        status.contact = self.contact;
        status.last_error.clone_from(&self.last_error);
        status.calls = self.made;
        status.failed = self.failed;
        status.round_trip = self.round_trip;
        status.worst_round_trip = self.worst.into_iter().max().flatten();
        status.clock_ahead = self.clock_ahead;
    }
}
