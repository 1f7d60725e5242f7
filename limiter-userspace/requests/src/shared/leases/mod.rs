//! Leases of the keys of requests: what the node that asks the store writes, and requests use.
//!
//! A lease has a lock of its own, and so has each part of the table of keys. A request holds both
//! while it looks at the clock and charges, so none is under way by a lease that has ended, however
//! long the system lets its thread wait: [`limiter_sharing::key::GRACE`] need not hold for it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use limiter_common::bucket::Slot;
use limiter_common::wire::{Ask, BUDGET_LEASES, HostLease, KEY_LEASES, KeyLeases, TableKey};
use limiter_decision::table::passes;
use limiter_sharing::Leases;
use limiter_sharing::key::Words;
use limiter_sharing::leases::{Counts, Granted, counts, grant};
use tokio::sync::Notify;

use crate::buckets::arithmetic::Places;
use crate::clock::Moment;
use crate::shared::rule::Patience;

/// Parts of the table of keys: a power of two.
const SHARDS: usize = 64;

/// Keys that have asked and were not heard yet. One more asks with a later request.
const MOST_ASKS: usize = 4096;

/// Keys with an entry: those with leases, and as many without.
const MOST_KEYS: usize = 2 * KEY_LEASES as usize;

#[derive(Debug, Default)]
struct Line {
    lease: HostLease,
    /// True if the store has answered for this key.
    answered: bool,
    /// Hits that may wait for the next answer: as many as came with the latest one, if the store
    /// gave what was wanted, and the next one comes in time.
    credit: u64,
    /// Hits of requests that wait for the next answer.
    waiting: u64,
}

impl Line {
    fn left(&self) -> u64 {
        let lease = self.lease.read();
        lease.granted.saturating_sub(lease.used)
    }
}

/// A key with leases, or one that has asked for some.
#[derive(Clone, Copy, Debug)]
struct Entry {
    leases: KeyLeases,
    count: u32,
    /// Changes whenever a key gets leases.
    serial: u64,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(RwLock<HashMap<TableKey, Entry>>);

#[derive(Debug, Default)]
struct Asks {
    queue: VecDeque<Ask>,
    node: Option<Waker>,
}

#[derive(Debug)]
pub(crate) struct LeaseTable {
    lines: Box<[Mutex<Line>]>,
    shards: Box<[Shard]>,
    entries: AtomicUsize,
    serial: AtomicU64,
    asks: Mutex<Asks>,
    /// True without contact to the store.
    cut_off: AtomicBool,
    /// Notified of each answer, and of keys that lose their leases.
    changed: Notify,
    /// Longest time in microseconds for which a request waits.
    deadline: u64,
}

/// Units that were charged to leases of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseCharge {
    key: TableKey,
    serial: u64,
    slot: Slot,
    places: Places,
    hits: u64,
}

/// State of the lease of a key at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The lease decides.
    Lives,
    /// The lease has ended, and the store did not take it back.
    Ended,
    /// There is no lease, or the store has not answered yet.
    None,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeaseOutcome {
    Within(LeaseCharge),
    /// More may come with the next answer.
    Waits,
    Over,
}

/// The leases of one key. The key keeps them as long as this lives.
pub(crate) struct KeyView<'a> {
    table: &'a LeaseTable,
    key: &'a TableKey,
    slot: Slot,
    entry: Option<Entry>,
}

impl LeaseTable {
    pub(crate) fn new(deadline: Duration) -> Self {
        Self {
            lines: (0..KEY_LEASES).map(|_| Mutex::default()).collect(),
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            entries: AtomicUsize::new(0),
            serial: AtomicU64::new(0),
            asks: Mutex::default(),
            cut_off: AtomicBool::new(false),
            changed: Notify::new(),
            deadline: u64::try_from(deadline.as_micros()).unwrap_or(u64::MAX),
        }
    }

    /// Notified of everything for which requests wait.
    pub(crate) const fn changed(&self) -> &Notify {
        &self.changed
    }

    /// True without contact to the store.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.cut_off.load(Ordering::Relaxed)
    }

    /// Notes whether there is contact to the store.
    pub(crate) fn set_cut_off(&self, cut_off: bool) {
        self.cut_off.store(cut_off, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    /// Looks at the leases of a key of the rule in a slot.
    pub(crate) fn with<R>(
        &self,
        key: &TableKey,
        slot: Slot,
        look: impl FnOnce(&KeyView<'_>) -> R,
    ) -> R {
        let keys = self.shard(key).0.read().unwrap_or_else(PoisonError::into_inner);
        let entry = keys.get(key).copied();
        look(&KeyView { table: self, key, slot, entry })
    }

    /// Asks for leases of a key, of `count` limits, unless somebody has.
    pub(crate) fn ask(&self, key: &TableKey, slot: Slot, count: u32) {
        let mut keys = self.shard(key).0.write().unwrap_or_else(PoisonError::into_inner);
        let elsewhere = match keys.get(key) {
            None => false,
            Some(entry) if entry.leases == KeyLeases::ELSEWHERE => true,
            Some(_) => return,
        };
        let mut asks = self.asks.lock().unwrap_or_else(PoisonError::into_inner);
        let room = elsewhere || self.entries.load(Ordering::Relaxed) < MOST_KEYS;
        if asks.queue.len() >= MOST_ASKS || !room {
            return;
        }
        asks.queue.push_back(Ask { key: *key, slot: slot.index(), reserved: 0 });
        let node = asks.node.take();
        drop(asks);
        if !elsewhere {
            self.entries.fetch_add(1, Ordering::Relaxed);
        }
        keys.insert(*key, Entry { leases: KeyLeases::ASKED, count, serial: 0 });
        drop(keys);
        if let Some(node) = node {
            node.wake();
        }
    }

    /// Gives units back that were charged, unless the key has other leases by now.
    pub(crate) fn give_back(&self, charge: &LeaseCharge) {
        self.with(&charge.key, charge.slot, |view| {
            if view.entry.is_some_and(|entry| entry.serial == charge.serial) {
                view.give_back(charge.places, charge.hits);
            }
        });
    }

    fn shard(&self, key: &TableKey) -> &Shard {
        // The key is a digest.
        let [high, _] = key.source;
        &self.shards[usize::try_from(high).unwrap_or_default() & (SHARDS - 1)]
    }

    fn line(&self, lease: u32) -> Option<MutexGuard<'_, Line>> {
        let index = usize::try_from(lease.checked_sub(BUDGET_LEASES)?).ok()?;
        // Words are written one by one, so a panic of another thread leaves good ones.
        Some(self.lines.get(index)?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl KeyView<'_> {
    fn line(&self, place: usize) -> Option<MutexGuard<'_, Line>> {
        let place = u32::try_from(place).ok()?;
        self.table.line(self.entry?.leases.lease(self.slot, place)?)
    }

    /// True if another node has leases of the key, and this one has not asked.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.entry.is_some_and(|entry| entry.leases == KeyLeases::ELSEWHERE)
    }

    /// True if nobody has asked for the key.
    pub(crate) fn may_ask(&self) -> bool {
        self.entry.is_none() || self.is_elsewhere()
    }

    pub(crate) fn standing(&self, place: usize) -> Standing {
        match self.line(place) {
            // Nothing passes by one of a window before that.
            Some(line) if !line.answered => Standing::None,
            Some(line) if Moment::now().now < line.lease.expires() => Standing::Lives,
            // The node takes the end out of a lease that it gives up.
            Some(line) if line.lease.expires().get() != 0 => Standing::Ended,
            _ => Standing::None,
        }
    }

    pub(crate) fn left(&self, place: usize) -> u64 {
        self.line(place).map_or(0, |line| line.left())
    }

    /// Counts hits as refused: demand for the next lease.
    pub(crate) fn deny(&self, places: Places, hits: u64) {
        for place in (0..).take(MOST_PLACES).filter(|place| places.has(*place)) {
            if let Some(line) = self.line(place) {
                line.lease.deny(hits);
            }
        }
    }

    fn give_back(&self, places: Places, hits: u64) {
        for place in (0..).take(MOST_PLACES).filter(|place| places.has(*place)) {
            if let Some(line) = self.line(place) {
                line.lease.used().fetch_sub(hits, Ordering::AcqRel);
            }
        }
    }

    /// Charges the leases at some places, or none of them. A look gives all back.
    pub(crate) fn charge(
        &self,
        places: Places,
        hits: u64,
        patience: Patience,
        look: bool,
    ) -> LeaseOutcome {
        let mut charged = Places::NONE;
        for place in (0..).take(MOST_PLACES).filter(|place| places.has(*place)) {
            let Some(mut line) = self.line(place) else { continue };
            // A waiting request was already counted as refused.
            let looks = patience != Patience::Waits || line.left() >= hits;
            if looks && passes(&line.lease, hits, Moment::now().now) {
                charged.add(place);
                continue;
            }
            let waits = match patience {
                Patience::Begins => {
                    // As many as came with the latest answer may come with the next one.
                    let waiting = line.waiting.saturating_add(hits);
                    let waits = waiting <= line.credit;
                    if waits {
                        line.waiting = waiting;
                    }
                    waits
                }
                // It is already counted among them.
                Patience::Waits => line.credit > 0,
                Patience::None(_) => false,
            };
            drop(line);
            self.give_back(charged, hits);
            return if waits { LeaseOutcome::Waits } else { LeaseOutcome::Over };
        }
        if look {
            self.give_back(charged, hits);
        }
        let serial = self.entry.map_or(0, |entry| entry.serial);
        let (key, slot) = (*self.key, self.slot);
        LeaseOutcome::Within(LeaseCharge { key, serial, slot, places: charged, hits })
    }
}

const MOST_PLACES: usize = limiter_common::wire::MAX_LIMITS;

/// The leases, as the thread of the node holds them.
#[derive(Debug)]
pub(crate) struct HeldLeases(pub(crate) Arc<LeaseTable>);

impl Leases for HeldLeases {
    fn now(&self) -> u64 {
        Moment::now().now.as_nanos() / 1000
    }

    fn seen(&self, lease: u32) -> Counts {
        self.0.line(lease).map_or_else(Counts::default, |line| counts(&line.lease))
    }

    fn poll_asks(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut asks = self.0.asks.lock().unwrap_or_else(PoisonError::into_inner);
        if asks.queue.is_empty() {
            asks.node = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    fn take_asks(&mut self) -> Vec<Ask> {
        self.0.asks.lock().unwrap_or_else(PoisonError::into_inner).queue.drain(..).collect()
    }

    fn set_leased(&mut self, key: &TableKey, leases: Option<KeyLeases>) {
        let Self(table) = self;
        let mut keys = table.shard(key).0.write().unwrap_or_else(PoisonError::into_inner);
        let Some(leases) = leases else {
            let removed = usize::from(keys.remove(key).is_some());
            table.entries.fetch_sub(removed, Ordering::Relaxed);
            drop(keys);
            table.changed.notify_waiters();
            return;
        };
        let first = |leases: KeyLeases| u32::try_from(leases.raw() & 0xffff_ffff).unwrap_or(0);
        let entry = keys.entry(*key).or_insert_with(|| {
            table.entries.fetch_add(1, Ordering::Relaxed);
            Entry { leases: KeyLeases::ELSEWHERE, count: 0, serial: 0 }
        });
        let before = std::mem::replace(&mut entry.leases, leases);
        if first(before) == first(leases) || first(leases) < BUDGET_LEASES {
            return;
        }
        entry.serial = table.serial.fetch_add(1, Ordering::Relaxed) + 1;
        for lease in first(leases)..first(leases).saturating_add(entry.count) {
            if let Some(mut line) = table.line(lease) {
                (line.answered, line.credit, line.waiting) = (false, 0, 0);
            }
        }
    }

    fn forget_keys(&mut self) {
        for Shard(keys) in &self.0.shards {
            let mut keys = keys.write().unwrap_or_else(PoisonError::into_inner);
            self.0.entries.fetch_sub(keys.len(), Ordering::Relaxed);
            keys.clear();
        }
        self.take_asks();
    }

    fn write(&mut self, lease: u32, words: Words) {
        if let Some(line) = self.0.line(lease) {
            grant(&line.lease, words);
        }
    }

    fn answered(&mut self, lease: u32, granted: Granted) {
        if let Some(mut line) = self.0.line(lease) {
            let Granted { wanted, units, again } = granted;
            (line.answered, line.waiting) = (true, 0);
            // Less than was wanted: the limit is nearly used up. One hit more may find the rest,
            // if the answer comes while somebody listens.
            if wanted > 0 {
                let most = if units < wanted { 1 } else { u64::MAX };
                line.credit = if again < self.0.deadline { units.min(most) } else { 0 };
            }
        }
        self.0.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
