//! Store in memory: the model of the Lua scripts, used by tests and simulations.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use limiter_sharing::account::{Account, Answer};
use limiter_sharing::rate::Tat;
use limiter_sharing::window::{WindowDemand, WindowState};

use super::membership::{Membership, Met, Place};
use super::store::{
    Answers, Ask, Batch, HOT_MAX, HotKey, Store, StoreError, WindowAsk, WindowBatch,
};

/// Time for which a key stays in the hot list after its last mention, in microseconds.
pub const HOT_KEPT: u64 = 60_000_000;
/// Time after which a key in use is mentioned again, in microseconds: for nodes that join later.
pub const HOT_AGAIN: u64 = 10_000_000;
/// After a loss of its state, the store assumes that limits are empty if they refill within this
/// time, in microseconds.
pub const FRESH: u64 = 10_000_000;

#[derive(Clone, Debug, Default)]
struct Shard {
    /// When the store first had this shard.
    boot: Option<u64>,
    accounts: HashMap<Box<[u8]>, Account>,
    windows: HashMap<Box<[u8]>, WindowState>,
    hot: HashMap<Box<[u8]>, u64>,
}

/// Store in the memory of one process.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    shards: HashMap<u16, Shard>,
    place: Place,
}

impl Memory {
    /// Handles a call at `now`, in microseconds since 1970.
    pub fn exchange_at(&mut self, now: u64, batch: &Batch) -> Result<Answers, StoreError> {
        batch.check()?;
        let shard = self.shards.entry(batch.shard).or_default();
        let boot = *shard.boot.get_or_insert(now);
        let mut hot = Vec::new();
        if let Some(since) = batch.hot_since {
            shard.hot.retain(|_, at| *at + HOT_KEPT > now);
            let reported = shard.hot.iter().filter(|(_, at)| **at >= since);
            hot.extend(reported.map(|(name, at)| HotKey { name: name.clone(), at: *at }));
            hot.sort_by(|a, b| (a.at, &a.name).cmp(&(b.at, &b.name)));
            hot.truncate(HOT_MAX);
        }
        let listed = batch.hot_since.is_some();
        let late = batch.deadline.is_some_and(|deadline| now > deadline);
        let answers =
            batch.asks.iter().map(|ask| Ok(shard.answer(now, boot, listed, late, ask))).collect();
        Ok(Answers { now, hot, answers })
    }

    /// Handles a call for windows at `now`, in microseconds since 1970.
    pub fn windows_at(&mut self, now: u64, batch: &WindowBatch) -> Result<Answers, StoreError> {
        batch.check()?;
        let shard = self.shards.entry(batch.shard).or_default();
        let late = batch.deadline.is_some_and(|deadline| now > deadline);
        let answer = |ask: &WindowAsk| {
            let begin = || WindowState::new(&ask.window, now);
            let mut state = shard.windows.remove(&ask.name).unwrap_or_else(begin);
            let want = if late { 0 } else { ask.demand.want };
            let demand = WindowDemand { want, ..ask.demand.clone() };
            let answer = state.exchange(&ask.window, now, &demand);
            if !state.is_empty() {
                shard.windows.insert(ask.name.clone(), state);
            }
            Ok(answer)
        };
        Ok(Answers { now, hot: Vec::new(), answers: batch.asks.iter().map(answer).collect() })
    }

    /// Handles a report of a node at `now`, in microseconds since 1970.
    pub fn meet_at(&mut self, now: u64, membership: &Membership) -> Result<Met, StoreError> {
        membership.check()?;
        self.place.meet(now, membership)
    }

    /// Loses everything.
    pub fn flush(&mut self) {
        *self = Self::default();
    }

    /// Number of existing keys, without windows.
    pub fn keys(&self) -> usize {
        self.shards.values().map(|shard| shard.accounts.len()).sum()
    }
}

impl Shard {
    fn answer(&mut self, now: u64, boot: u64, listed: bool, late: bool, ask: &Ask) -> Answer {
        let central = &ask.central;
        let mut demand = ask.demand;
        if late {
            demand.want = 0;
        }
        let known = self.accounts.get(&ask.name).copied();
        let mut account = known.unwrap_or_else(|| {
            let mut account = Account::new(central, now);
            let full = Tat::at(boot).plus(central.rate, central.burst);
            if central.refill() <= FRESH && now >= boot {
                account.tat = full.not_before(now);
            }
            account
        });
        let answer = account.exchange(central, now, &demand);
        if answer.rest == 0 {
            self.accounts.remove(&ask.name);
            return answer;
        }
        self.accounts.insert(ask.name.clone(), account);
        let mentioned = self.hot.get(&ask.name).copied();
        if listed && mentioned.is_none_or(|at| now >= at + HOT_AGAIN || known.is_none()) {
            self.hot.insert(ask.name.clone(), now);
        }
        answer
    }
}

/// Store in the memory of one process, for several nodes in it.
#[derive(Debug, Default)]
pub struct SharedMemory(Mutex<Memory>);

impl SharedMemory {
    /// Locks the store in memory.
    pub fn lock(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The current time in microseconds since 1970.
pub(super) fn clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

impl Store for SharedMemory {
    async fn exchange(&self, batch: &Batch) -> Result<Answers, StoreError> {
        self.lock().exchange_at(clock(), batch)
    }

    async fn windows(&self, batch: &WindowBatch) -> Result<Answers, StoreError> {
        self.lock().windows_at(clock(), batch)
    }

    async fn meet(&self, membership: &Membership) -> Result<Met, StoreError> {
        self.lock().meet_at(clock(), membership)
    }

    fn is_ready(&self) -> bool {
        true
    }
}
