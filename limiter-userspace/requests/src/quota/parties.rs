//! Who has a part of a bucket.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::buckets::key::Key;

#[derive(Clone, Copy, Debug)]
pub(super) struct Party {
    pub(super) session: u64,
    /// True if its stream has ended, so that it goes on by what it has.
    pub(super) has_gone: bool,
    /// Millionths of hits a second that it wants.
    pub(super) demand: u64,
    /// Millionths of hits a second that it has.
    pub(super) rate: u64,
    /// Hits that were charged for it, and that it may still use.
    pub(super) held: u64,
    /// Nanoseconds since boot at which its assignment ends.
    pub(super) until: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Quotas {
    parties: Mutex<HashMap<Key, Vec<Party>>>,
    sessions: AtomicU64,
    buckets: AtomicU64,
    assignments: AtomicU64,
}

impl Quotas {
    /// Buckets of clients, and assignments until now.
    pub(crate) fn counts(&self) -> [u64; 2] {
        [&self.buckets, &self.assignments].map(|count| count.load(Ordering::Relaxed))
    }

    pub(super) fn next_session(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn count_assignment(&self) {
        self.assignments.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds a bucket; false if there are `most`.
    pub(super) fn add_bucket(&self, most: u64) -> bool {
        let room = self.buckets.fetch_add(1, Ordering::Relaxed) < most;
        if !room {
            self.remove_bucket();
        }
        room
    }

    pub(super) fn remove_bucket(&self) {
        self.buckets.fetch_sub(1, Ordering::Relaxed);
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Key, Vec<Party>>> {
        self.parties.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a client has, and returns all who have some.
    pub(super) fn meet(&self, key: Key, own: Party, now: u64) -> Vec<Party> {
        let mut all = self.all();
        let parties = all.entry(key).or_default();
        parties.retain(|party| party.session != own.session && party.until > now);
        parties.push(own);
        parties.clone()
    }

    /// Hits that all clients hold.
    pub(super) fn held(&self, key: Key) -> u64 {
        self.all().get(&key).map_or(0, |parties| parties.iter().map(|party| party.held).sum())
    }

    /// Notes that a client leaves; with a moment, that it goes on until its assignment ends.
    pub(super) fn leave(&self, key: Key, session: u64, gone: Option<u64>) {
        let mut all = self.all();
        let Some(parties) = all.get_mut(&key) else { return };
        for party in parties.iter_mut().filter(|party| party.session == session) {
            party.has_gone = true;
        }
        parties.retain(|party| match gone {
            None => party.session != session,
            Some(now) => party.until > now,
        });
        if parties.is_empty() {
            all.remove(&key);
        }
    }

    /// Takes over what a departed client has, now that it is back.
    pub(super) fn take_over(&self, key: Key) -> u64 {
        let mut all = self.all();
        let Some(parties) = all.get_mut(&key) else { return 0 };
        let gone = parties.iter().position(|party| party.has_gone);
        gone.map_or(0, |index| parties.swap_remove(index).held)
    }
}

/// The max-min fair share of one client: its demand, capped at an equal split, plus an equal part
/// of what others leave unused. Those who send no reports get one such part, too, and every demand
/// counts as at least an eighth of an equal split.
pub(super) fn share(own: u64, demands: &[u64], capacity: u64) -> u64 {
    let count = u64::try_from(demands.len()).unwrap_or(u64::MAX).max(1);
    let least = capacity / count / 8;
    let mut sorted: Vec<u64> = demands.iter().map(|demand| (*demand).max(least)).collect();
    sorted.sort_unstable();
    let (mut rest, mut others) = (capacity, count);
    for demand in sorted {
        let equal = rest / others.max(1);
        if demand > equal {
            return own.max(least).min(equal);
        }
        rest -= demand;
        others -= 1;
    }
    own.max(least).saturating_add(rest / count.saturating_add(1))
}
