//! State machine of one shared limit on one node. It has no clock and does no I/O: times are
//! parameters, in microseconds of a clock that never goes back, and calls to send are return
//! values.
//!
//! The key drives a *lease line*, in which every word has one writer: the data path writes `used`
//! and `denied`, the owner of this machine writes `granted` and `expires` as [`Key::words`] returns
//! them. While `now < expires` the data path passes a packet if `used + cost <= granted`. Otherwise
//! it decides by the node's share, or by what is configured for a partition.

use super::account::{Answer, Demand};
use super::cap::Cap;
use super::ledger::Ledger;
use super::limit::SharedLimit;
use super::pace::Pace;
use super::spread::Spread;

/// Longest time, in microseconds, that a packet can be in progress after it has read the line.
pub const GRACE: u64 = 5_000;

/// Counts of a key in the data path at one moment. All except `owed` are totals that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Units passed by the line.
    pub used: u64,
    /// Units refused by the line or by the share.
    pub denied: u64,
    /// Units passed by the node's share.
    pub shared: u64,
    /// Units that the share's bucket owes now.
    pub owed: u64,
}

/// The words of the line that this machine writes. They may be written in any order: `granted` is
/// lowered only below earlier grants, and `expires` is the time until which it is valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// Total that `used` may reach.
    pub granted: u64,
    /// Time until which the line decides; 0 for never.
    pub expires: u64,
}

/// A call to the store. Its answer must come with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Number of the call.
    pub sequence: u64,
    /// Demand of the node for this key.
    pub demand: Demand,
}

/// Totals of the share when the key was last known not to exist, or was last reported.
#[derive(Clone, Copy, Debug, Default)]
struct Reported {
    shared: u64,
    owed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    sequence: u64,
    sent: u64,
    want: u64,
    lapsed: bool,
    shared: u64,
}

/// One shared limit on one node.
#[derive(Clone, Debug)]
pub struct Key {
    limit: SharedLimit,
    ledger: Ledger,
    cap: Cap,
    /// True if the key is known to exist in the store: then its share is not used.
    hot: bool,
    /// True if the share was used since it was last reported to the store.
    lapsed: bool,
    /// Time until which a line without units decides.
    known_until: u64,
    reported: Reported,
    seen: Seen,
    pace: Pace,
    flight: Option<Flight>,
    sequence: u64,
    last_answer: Option<u64>,
    last_call: Option<u64>,
    next_call: u64,
    /// Until then, no call is made ahead of schedule.
    patience: u64,
    wake: bool,
    spread: Spread,
}

impl Key {
    /// A key about which nothing is known. `jitter` separates its calls from those of other keys.
    pub fn new(limit: SharedLimit, now: u64, jitter: u64) -> Self {
        let always = limit.settings().always;
        Self {
            limit,
            ledger: Ledger::default(),
            cap: Self::cap_of(&limit, now),
            // With `always`, nothing passes before the first answer, unless none comes.
            hot: always,
            lapsed: false,
            known_until: if always { now.saturating_add(limit.lost_after()) } else { 0 },
            reported: Reported::default(),
            seen: Seen::default(),
            pace: Pace::new(now),
            flight: None,
            sequence: 0,
            last_answer: None,
            last_call: None,
            next_call: now.saturating_add(jitter % limit.settings().sync),
            patience: 0,
            wake: false,
            spread: Spread::new(jitter),
        }
    }

    fn cap_of(limit: &SharedLimit, now: u64) -> Cap {
        let (rate, burst) = limit.central();
        Cap::new(rate, burst, now)
    }

    /// The node's own account of the limit.
    pub fn cap(&self) -> &Cap {
        &self.cap
    }

    /// Continues an earlier account of this limit.
    pub fn resume(&mut self, now: u64, before: Cap) {
        let to = std::mem::replace(&mut self.cap, before);
        self.cap.change(now, &to);
    }

    /// The words to write to the line. If a node stops calling this, the line expires by itself,
    /// before its first unit dies.
    pub fn words(&self) -> Words {
        let expires = match self.ledger.dies() {
            _ if !self.hot || self.lapsed => 0,
            Some(dies) => dies,
            None => self.known_until,
        };
        Words { granted: self.ledger.granted(), expires }
    }

    /// True if this node knows that the key exists in the store.
    pub fn is_hot(&self) -> bool {
        self.hot
    }

    /// Time in microseconds before which the store is not asked again.
    pub fn patience(&self) -> u64 {
        self.patience
    }

    /// True if the store has answered at least once.
    pub fn was_answered(&self) -> bool {
        self.last_answer.is_some()
    }

    /// The limit of this key.
    pub fn limit(&self) -> &SharedLimit {
        &self.limit
    }

    /// Changes the numbers of the limit, after a rule or the number of nodes changed. Held units
    /// stay, because they were granted.
    pub fn set_limit(&mut self, now: u64, limit: SharedLimit) {
        self.limit = limit;
        self.cap.change(now, &Self::cap_of(&limit, now));
    }

    /// Records that the store's list of hot keys does not contain this key. `seen` was read before
    /// the store was asked.
    pub fn not_hot(&mut self, seen: &Seen) {
        if !self.hot {
            self.reported = Reported { shared: seen.shared, owed: seen.owed };
        }
    }

    /// Records that the store has this key, because another node promoted it. The next
    /// [`Key::tick`] calls.
    pub fn promoted(&mut self) {
        self.wake |= !self.hot;
    }

    /// Call this at least eight times per sync period with the line's counts. Returns the call to
    /// make, if one is due. In any case, write [`Key::words`] to the line afterwards.
    pub fn tick(&mut self, now: u64, seen: &Seen) -> Option<Call> {
        // The line still has these words.
        self.lapsed |= self.hot && now >= self.words().expires;
        self.observe(now, seen);
        // Take units out some time before they die, so that the line need not expire with them.
        self.ledger.retire(now, now.saturating_add(self.limit.life() / 8));
        if self.flight.is_some() || !self.is_due(now) {
            return None;
        }
        Some(self.call(now))
    }

    fn observe(&mut self, now: u64, seen: &Seen) {
        let used = self.ledger.settle(seen.used);
        self.cap.used(now, used);
        let denied = seen.denied.saturating_sub(self.seen.denied);
        let shared = seen.shared.saturating_sub(self.seen.shared);
        let arrived = used.saturating_add(denied).saturating_add(shared);
        self.pace.observe(now, arrived);
        self.seen = *seen;
    }

    fn is_due(&self, now: u64) -> bool {
        if self.wake {
            return true;
        }
        let spacing = self.limit.settings().sync / 8;
        let early = now >= self.patience && self.last_call.is_none_or(|last| now - last >= spacing);
        if self.hot {
            let pace = self.pace.at(now, self.limit.settings().sync, self.last_call);
            let target = self.target(pace, now);
            return now >= self.next_call || early && self.ledger.left() < target.div_ceil(4);
        }
        early
            && match self.limit.cold() {
                // Half of the share is owed.
                Some((_, burst)) => self.seen.owed.saturating_mul(2) > burst,
                None => self.pace.has_news(),
            }
    }

    /// Units to hold: as many as arrive in one and a half sync periods.
    fn target(&self, pace: u64, now: u64) -> u64 {
        let least = if self.pace.is_recent(now) { self.limit.settings().largest } else { 0 };
        let wanted = pace.saturating_add(pace.div_ceil(2));
        wanted.max(least).max(self.limit.standing()).min(self.limit.most())
    }

    fn call(&mut self, now: u64) -> Call {
        let sync = self.limit.settings().sync;
        let pace = self.pace.call(now, sync, self.last_call);
        let target = self.target(pace, now);
        let left = self.ledger.left();
        // Units that die before the next but one call are replaced now.
        let lasting = self.ledger.left_at(now + sync * 5 / 4 + self.limit.life() / 8);
        let want = target.saturating_sub(lasting);
        let (epoch, latest, before) = self.ledger.take_reports(now, GRACE);
        // Keep a small surplus: it would be requested again.
        if left > target + target / 4 {
            self.ledger.lower(now, left - target);
        }
        let owed = self.owed();
        self.wake = false;
        self.sequence += 1;
        self.flight = Some(Flight {
            sequence: self.sequence,
            sent: now,
            want,
            lapsed: self.lapsed || !self.hot,
            shared: self.seen.shared,
        });
        self.last_call = Some(now);
        self.next_call = now + sync;
        Call { sequence: self.sequence, demand: Demand { epoch, latest, before, owed, want } }
    }

    /// Units passed by the share that were not reported to the store, as far as they were owed when
    /// the key was last known not to exist. What has drained since then is included, because the
    /// store also drains it, and it must not drain twice. After a long partition, limited to what
    /// the share holds.
    fn owed(&self) -> u64 {
        match self.limit.cold() {
            Some((rate, burst)) if !self.limit.settings().strict => {
                let since = self.seen.shared.saturating_sub(self.reported.shared);
                let most = burst + rate.units_in(2 * self.limit.settings().sync);
                self.reported.owed.saturating_add(since).min(most)
            }
            _ => 0,
        }
    }

    /// Handles the store's answer to call `sequence`. Late and duplicate answers change nothing.
    pub fn answered(&mut self, now: u64, sequence: u64, answer: &Answer) {
        let Some(flight) = self.flight.take_if(|flight| flight.sequence == sequence) else {
            return;
        };
        let sync = self.limit.settings().sync;
        self.last_answer = Some(now);
        self.reported = Reported { shared: flight.shared, owed: 0 };
        if answer.rest == 0 && !self.limit.settings().always {
            self.hot = false;
            self.lapsed = false;
            self.ledger.clear();
            self.patience = now + sync / 4;
            return;
        }
        if !self.hot || flight.lapsed {
            self.hot = true;
            self.lapsed = false;
        }
        let life = self.limit.life().min(answer.until);
        let grant = self.cap.take(now, answer.grant, self.ledger.outstanding());
        self.ledger.add(grant, flight.sent.saturating_add(life), answer.epoch);
        self.ledger.refuse(answer.grant - grant, answer.epoch);
        let short = grant < flight.want;
        let idle = self.ledger.left() == 0 && !self.ledger.has_news();
        let planned = match (idle, short) {
            (true, true) => answer.wait.clamp(sync, 4 * sync),
            (true, false) if self.target(self.pace.of_call(), now) == 0 => {
                answer.rest.clamp(sync, 4 * sync)
            }
            _ => sync,
        };
        // Other nodes want the same: asking more often does not help.
        self.patience = now.saturating_add(answer.wait).max(if short { now + sync / 2 } else { 0 });
        self.next_call = flight.sent + self.spread.apart(planned, sync);
        self.known_until = flight.sent + planned + self.limit.lost_after() - sync;
    }

    /// Handles a call that failed or took too long. What the store did is unknown: what was
    /// reported is not reported again, and what was granted is never used.
    pub fn failed(&mut self, now: u64, sequence: u64) {
        if self.flight.take_if(|flight| flight.sequence == sequence).is_some() {
            self.patience = now + self.limit.settings().sync / 4;
            self.next_call = now + self.limit.settings().sync / 4;
            self.spread.bunch();
        }
    }

    /// Ends the lease: its words pass nothing from now on, and a pending answer is ignored. `seen`
    /// are the line's counts.
    pub fn end(&mut self, now: u64, seen: &Seen) {
        self.observe(now, seen);
        self.hot = false;
        self.flight = None;
        self.ledger.lower(now, u64::MAX);
    }

    /// Last report of a key that ended at least [`GRACE`] ago, with its line's counts; `None` if
    /// there is nothing to report. It expects no answer.
    pub fn farewell(&mut self, now: u64, seen: &Seen) -> Option<Demand> {
        self.observe(now, seen);
        let owed = self.owed();
        let (epoch, latest, before) = self.ledger.take_reports(now, GRACE);
        let nothing =
            owed == 0 && [latest, before].iter().all(|reported| reported.used + reported.back == 0);
        (!nothing).then_some(Demand { epoch, latest, before, owed, want: 0 })
    }
}
