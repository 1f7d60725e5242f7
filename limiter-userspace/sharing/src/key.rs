//! State machine of one shared limit on one node. No clock, no I/O: times are parameters, in
//! microseconds of a clock that never goes back; what is to be sent is returned.
//!
//! The key drives a *lease line*, in which every word has one writer: the data path writes `used`
//! and `denied`, the owner of this machine writes `granted` and `expires` as [`Key::words`] says.
//! While `now < expires` the data path passes a packet if `used + cost <= granted`. Otherwise it
//! judges by the node's share, or what is configured for a partition.

use super::account::{Answer, Demand};
use super::cap::Cap;
use super::ledger::Ledger;
use super::limit::SharedLimit;
use super::pace::Pace;
use super::spread::Spread;

/// Longest time, in microseconds, for which a packet may be under way that has read the line.
pub const GRACE: u64 = 5_000;

/// Counts that the data path shows of a key at one moment. All but `owed` are totals that only
/// grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Units that passed by the line.
    pub used: u64,
    /// Units that were refused, by the line or by the share.
    pub denied: u64,
    /// Units that passed by the node's share.
    pub shared: u64,
    /// Units that the share's bucket owes now.
    pub owed: u64,
}

/// The words of the line that this machine writes. Both may be written in any order: `granted` is
/// lowered only below what was granted before, and `expires` says until when it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// Total that `used` may reach.
    pub granted: u64,
    /// Time until which the line decides; 0: never.
    pub expires: u64,
}

/// A call to the store, to be answered with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Number of the call.
    pub sequence: u64,
    /// Demand of the node for this key.
    pub demand: Demand,
}

/// Totals of the share when the key was last known not to exist, or was reported.
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
    /// True if the key exists in the store, as far as is known: then its share is out of use.
    hot: bool,
    /// True if the share was in use since the store was informed of it.
    lapsed: bool,
    /// Until when a line without units decides.
    known_until: u64,
    reported: Reported,
    seen: Seen,
    pace: Pace,
    flight: Option<Flight>,
    sequence: u64,
    last_answer: Option<u64>,
    last_call: Option<u64>,
    next_call: u64,
    /// Before it, no call is made early.
    patience: u64,
    wake: bool,
    spread: Spread,
}

impl Key {
    /// A key that nothing is known of. `jitter` puts its calls apart from those of others.
    pub fn new(limit: SharedLimit, now: u64, jitter: u64) -> Self {
        let always = limit.settings().always;
        Self {
            limit,
            ledger: Ledger::default(),
            cap: Self::cap_of(&limit, now),
            // Nothing passes before the first answer, unless it does not come.
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

    /// Goes on with the account of this limit that was given up before.
    pub fn resume(&mut self, now: u64, before: Cap) {
        let to = std::mem::replace(&mut self.cap, before);
        self.cap.change(now, &to);
    }

    /// Words that the line is to have. A node that stops calling this leaves a line that ends by
    /// itself, before the first unit in it dies.
    pub fn words(&self) -> Words {
        let expires = match self.ledger.dies() {
            _ if !self.hot || self.lapsed => 0,
            Some(dies) => dies,
            None => self.known_until,
        };
        Words { granted: self.ledger.granted(), expires }
    }

    /// True if the key exists in the store, as far as this node knows.
    pub fn is_hot(&self) -> bool {
        self.hot
    }

    /// Time in microseconds before which the store is not asked again.
    pub fn patience(&self) -> u64 {
        self.patience
    }

    /// True if the store has answered.
    pub fn was_answered(&self) -> bool {
        self.last_answer.is_some()
    }

    /// The limit it is of.
    pub fn limit(&self) -> &SharedLimit {
        &self.limit
    }

    /// Another limit of the same key: a changed rule, or another number of nodes. What is held
    /// stays: it was granted.
    pub fn set_limit(&mut self, now: u64, limit: SharedLimit) {
        self.limit = limit;
        self.cap.change(now, &Self::cap_of(&limit, now));
    }

    /// The store was asked for its hot keys, and this was not among them. `seen` was read before it
    /// was asked.
    pub fn not_hot(&mut self, seen: &Seen) {
        if !self.hot {
            self.reported = Reported { shared: seen.shared, owed: seen.owed };
        }
    }

    /// The store has this key: another node has promoted it. The next [`Key::tick`] calls.
    pub fn promoted(&mut self) {
        self.wake |= !self.hot;
    }

    /// To be called at least eight times in a sync period, with what the line shows. The call to
    /// make, if one is due; then the line is to get [`Key::words`] whether there is one or not.
    pub fn tick(&mut self, now: u64, seen: &Seen) -> Option<Call> {
        // The line had these until now.
        self.lapsed |= self.hot && now >= self.words().expires;
        self.observe(now, seen);
        // Units are taken out a while before they die, so that the line need not end with them.
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

    /// Units to hold: what comes in one and a half sync periods.
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
        // Units that die before the call after this one are replaced now.
        let lasting = self.ledger.left_at(now + sync * 5 / 4 + self.limit.life() / 8);
        let want = target.saturating_sub(lasting);
        let (epoch, latest, before) = self.ledger.take_reports(now, GRACE);
        // A little too much is kept: it would be asked for again.
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

    /// Units that passed by the share and the store was not informed of, as far as they were owed
    /// when the key was last known not to exist. What has drained since then counts: beside the
    /// store's, that drain would be a second one. After a long partition, not more than the share
    /// holds.
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

    /// The store answered call `sequence`. Late and doubled answers change nothing.
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
        // Others want the same: asking often does not make it more.
        self.patience = now.saturating_add(answer.wait).max(if short { now + sync / 2 } else { 0 });
        self.next_call = flight.sent + self.spread.apart(planned, sync);
        self.known_until = flight.sent + planned + self.limit.lost_after() - sync;
    }

    /// Call `sequence` failed or took too long. It is not known what the store did: what was
    /// reported is not reported again, and what was granted is never used.
    pub fn failed(&mut self, now: u64, sequence: u64) {
        if self.flight.take_if(|flight| flight.sequence == sequence).is_some() {
            self.patience = now + self.limit.settings().sync / 4;
            self.next_call = now + self.limit.settings().sync / 4;
            self.spread.bunch();
        }
    }

    /// Ends the lease: its words let nothing pass from now on, and an answer under way is refused.
    /// `seen` is what its line shows.
    pub fn end(&mut self, now: u64, seen: &Seen) {
        self.observe(now, seen);
        self.hot = false;
        self.flight = None;
        self.ledger.lower(now, u64::MAX);
    }

    /// Last report of a key that was ended at least [`GRACE`] ago, with what its line shows; `None`
    /// where there is nothing to report. There is no answer to wait for.
    pub fn farewell(&mut self, now: u64, seen: &Seen) -> Option<Demand> {
        self.observe(now, seen);
        let owed = self.owed();
        let (epoch, latest, before) = self.ledger.take_reports(now, GRACE);
        let nothing =
            owed == 0 && [latest, before].iter().all(|reported| reported.used + reported.back == 0);
        (!nothing).then_some(Demand { epoch, latest, before, owed, want: 0 })
    }
}
