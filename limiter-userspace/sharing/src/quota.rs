//! State machine of one shared window on one node, without a clock or I/O like [`super::key`].
//!
//! A unit of a window may be used until the window ends, so nothing is renewed; a unit of a log
//! lives as long as the store counts it. There is no share: until the first answer nothing passes,
//! unless none comes.

use super::account::Answer;
use super::cap::Cap;
use super::key::{GRACE, Seen, Words};
use super::ledger::Ledger;
use super::limit::{SYNC_MAX, SYNC_MIN};
use super::pace::{HOLD, Pace};
use super::rate::mul_div_up;
use super::spread::Spread;
use super::window::{Window, WindowDemand, WindowKind};

/// Longest pause between two calls for an exhausted window, in sync periods.
const PAUSE_MOST: u64 = 64;
/// Longest time in microseconds for which units for a packet are held after the last packet.
const HOLD_MOST: u64 = 60_000_000;

/// A call to the store. Its answer must come with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowCall {
    /// Number of the call.
    pub sequence: u64,
    /// Demand of the node for this key.
    pub demand: WindowDemand,
}

#[derive(Clone, Copy, Debug)]
struct WindowFlight {
    sequence: u64,
    sent: u64,
    want: u64,
}

/// One shared window on one node.
#[derive(Clone, Debug)]
pub struct Quota {
    window: Window,
    sync: u64,
    ledger: Ledger,
    cap: Cap,
    pace: Pace,
    seen: Seen,
    flight: Option<WindowFlight>,
    sequence: u64,
    last_call: Option<u64>,
    next_call: u64,
    /// Until then, no call is made ahead of schedule.
    patience: u64,
    /// Pause after a call that granted nothing.
    pause: u64,
    spread: Spread,
    /// Time until which a line without units decides, and the latest for a line with units.
    known_until: u64,
    held_until: u64,
}

impl Quota {
    /// A window about which nothing is known. `sync` is its sync period in microseconds, clamped to
    /// [`SYNC_MIN`] to [`SYNC_MAX`]. `jitter` separates its calls from those of others.
    pub fn new(window: Window, sync: u64, now: u64, jitter: u64) -> Self {
        let sync = sync.clamp(SYNC_MIN, SYNC_MAX);
        Self {
            window,
            sync,
            ledger: Ledger::default(),
            cap: Cap::of_window(&window, now),
            pace: Pace::new(now),
            seen: Seen::default(),
            flight: None,
            sequence: 0,
            last_call: None,
            next_call: now.saturating_add(jitter % sync),
            patience: 0,
            pause: sync,
            spread: Spread::new(jitter),
            known_until: now.saturating_add(lost_after(sync)),
            held_until: 0,
        }
    }

    /// The node's own account of the window.
    pub fn cap(&self) -> &Cap {
        &self.cap
    }

    /// Continues an earlier account of this window.
    pub fn resume(&mut self, now: u64, before: Cap) {
        let to = std::mem::replace(&mut self.cap, before);
        self.cap.change(now, &to);
    }

    /// The words to write to the line. A line expires by itself after the last answered call: two
    /// and a half sync periods later, or four if it has units.
    pub fn words(&self) -> Words {
        let expires = match self.ledger.dies() {
            Some(dies) => dies.min(self.held_until),
            None => self.known_until,
        };
        Words { granted: self.ledger.granted(), expires }
    }

    /// Time in microseconds before which the store is not asked again.
    pub fn patience(&self) -> u64 {
        self.patience
    }

    /// True if nothing arrived for a while and nothing is held.
    pub fn is_idle(&self, now: u64) -> bool {
        self.last_call.is_some() && !self.pace.is_recent(now) && self.ledger.left() == 0
    }

    /// The window of this state machine.
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// Changes length, quota or sync period of the same window. Units stay, because they were
    /// granted and count in the store.
    pub fn set_window(&mut self, now: u64, window: Window, sync: u64) {
        self.window = window;
        self.cap.change(now, &Cap::of_window(&window, now));
        self.sync = sync.clamp(SYNC_MIN, SYNC_MAX);
        self.pause = self.sync;
    }

    /// Call this at least eight times per sync period with the line's counts. Returns the call to
    /// make, if one is due. In any case, write [`Quota::words`] to the line afterwards.
    pub fn tick(&mut self, now: u64, seen: &Seen) -> Option<WindowCall> {
        self.observe(now, seen);
        // Two ticks before they die, so that the line need not expire with them.
        self.ledger.retire(now, now.saturating_add(self.margin()));
        if self.flight.is_some() || !self.is_due(now) {
            return None;
        }
        Some(self.call(now))
    }

    fn observe(&mut self, now: u64, seen: &Seen) {
        let used = self.ledger.settle(seen.used);
        self.cap.used(now, used);
        let denied = seen.denied.saturating_sub(self.seen.denied);
        self.pace.observe(now, used.saturating_add(denied));
        self.seen = *seen;
    }

    fn margin(&self) -> u64 {
        self.sync / 4
    }

    fn is_due(&self, now: u64) -> bool {
        if now >= self.next_call {
            return true;
        }
        let apart = self.last_call.is_none_or(|last| now.saturating_sub(last) >= self.sync / 8);
        let pace = self.pace.at(now, self.sync, self.last_call);
        now >= self.patience && apart && self.ledger.left() < self.target(pace, now).div_ceil(4)
    }

    /// Units to hold: as many as arrive in one and a half sync periods, at most the cap of the
    /// quota.
    fn target(&self, pace: u64, now: u64) -> u64 {
        let least = if self.is_held(now) { self.window.largest } else { 0 };
        let Window { quota, largest, lease_cap, .. } = self.window;
        let most = mul_div_up(quota, lease_cap, 1000).max(largest).min(quota);
        pace.saturating_add(pace.div_ceil(2)).max(least).min(most)
    }

    /// True if units for a packet are held: for a sixth of the window after the last packet, so
    /// that a sender that visits several nodes in turn finds them on its next visit.
    fn is_held(&self, now: u64) -> bool {
        self.pace.is_within(now, (self.window.length / 6).clamp(HOLD, HOLD_MOST))
    }

    fn call(&mut self, now: u64) -> WindowCall {
        let pace = self.pace.call(now, self.sync, self.last_call);
        let target = self.target(pace, now);
        let left = self.ledger.left();
        let lasting = match self.window.kind {
            // Units that die before the next but one call are replaced now.
            WindowKind::SlidingLog => self.ledger.left_at(now + self.sync * 5 / 4 + self.margin()),
            WindowKind::Fixed | WindowKind::SlidingCounter => left,
        };
        let want = target.saturating_sub(lasting);
        let backs = self.ledger.take_backs(now, GRACE);
        // Keep a small surplus: it would be requested again.
        if left > target + target / 4 {
            self.ledger.lower(now, left - target);
        }
        self.sequence += 1;
        self.flight = Some(WindowFlight { sequence: self.sequence, sent: now, want });
        self.last_call = Some(now);
        self.next_call = now + self.sync;
        WindowCall { sequence: self.sequence, demand: WindowDemand { backs, want } }
    }

    /// Handles the store's answer to call `sequence`. Late and duplicate answers change nothing.
    pub fn answered(&mut self, now: u64, sequence: u64, answer: &Answer) {
        let Some(flight) = self.flight.take_if(|flight| flight.sequence == sequence) else {
            return;
        };
        let life = match self.window.kind {
            WindowKind::SlidingLog => self.window.life.min(answer.until),
            WindowKind::Fixed | WindowKind::SlidingCounter => answer.until,
        };
        let grant = self.cap.take(now, answer.grant, self.ledger.outstanding());
        self.ledger.add(grant, flight.sent.saturating_add(life), answer.epoch);
        self.ledger.refuse(answer.grant - grant, answer.epoch);
        let short = grant < flight.want;
        self.pause = match (short, grant) {
            // Other nodes want the same, or have all of it: asking more often does not help.
            (true, 0) => (self.pause * 2).min(self.longest_pause()),
            _ => self.sync,
        };
        let next = if short {
            now + self.pause.min(answer.wait.max(self.sync / 4))
        } else if self.ledger.left() == 0 && !self.ledger.has_news() {
            flight.sent + 4 * self.sync
        } else {
            flight.sent + self.spread.apart(self.sync, self.sync)
        };
        self.patience = if short { next } else { now };
        // A new window has units for those who wait.
        let end = now.saturating_add(answer.until).saturating_add(self.spread.delay(self.sync));
        self.next_call = if self.is_held(now) { next.min(end) } else { next };
        self.patience = self.patience.min(end);
        self.known_until = self.next_call + lost_after(self.sync) - self.sync;
        self.held_until = flight.sent + (4 * self.sync).max(self.window.life);
    }

    /// Longest pause: a sliding window frees a little after each part of its length.
    fn longest_pause(&self) -> u64 {
        (self.window.length / 64).clamp(self.sync, PAUSE_MOST * self.sync)
    }

    /// Handles a call that failed or took too long. What the store did is unknown: units that were
    /// returned are not returned again, and what was granted is never used.
    pub fn failed(&mut self, now: u64, sequence: u64) {
        if self.flight.take_if(|flight| flight.sequence == sequence).is_some() {
            self.patience = now + self.sync / 4;
            self.next_call = self.patience;
            self.spread.bunch();
        }
    }

    /// Ends the lease: its words pass nothing from now on, and a pending answer is ignored. `seen`
    /// are the line's counts.
    pub fn end(&mut self, now: u64, seen: &Seen) {
        self.observe(now, seen);
        self.flight = None;
        self.ledger.lower(now, u64::MAX);
        self.known_until = 0;
    }

    /// Units to return of a window that ended at least [`GRACE`] ago, with its line's counts;
    /// `None` if there are none. It expects no answer.
    pub fn farewell(&mut self, now: u64, seen: &Seen) -> Option<WindowDemand> {
        self.observe(now, seen);
        let backs = self.ledger.take_backs(now, GRACE);
        (!backs.is_empty()).then_some(WindowDemand { backs, want: 0 })
    }
}

/// Time in microseconds without an answer after which a node considers the store lost, like
/// [`super::SharedLimit::lost_after`].
fn lost_after(sync: u64) -> u64 {
    sync * 5 / 2
}
