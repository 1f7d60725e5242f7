//! Buckets in memory: bounded, and changed by many threads at once.
//!
//! A shard is a table behind a lock. A decision takes the lock for reading, and changes the words
//! of its key by compare-and-exchange; only a key that comes or goes takes the lock for writing. A
//! key of one word costs 32 bytes, and a table is between 44 % and 88 % full: 38 to 76 bytes a key.

use std::collections::{BTreeSet, HashMap};
use std::mem::size_of;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use limiter_common::wire::WORDS;
use limiter_rules::file::requests::RequestLimit;

use crate::clock::Moment;
use crate::decision::Limits;
use crate::key::{AsItIs, Key};

/// Shards: a power of two. Those that two threads want at once are rarely the same.
const SHARDS: usize = 256;

/// Nanoseconds between two searches of a full shard for keys that may go, so that a full table
/// costs a request no more than a look.
const SEARCH_APART: u64 = 100_000_000;

/// Limits that requests bring themselves, of different kinds.
const MAX_OVERRIDES: usize = 1024;

/// The number of limits that are in use, by which a key names its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LimitsId(u32);

/// A key with one word.
struct Small {
    word: [AtomicU64; 1],
    limits: LimitsId,
}

/// A key with more.
struct Large {
    words: Box<[AtomicU64]>,
    limits: LimitsId,
}

const _: () = assert!(size_of::<(Key, Small)>() == 32);

/// A key, its words and its limits.
pub(crate) type Stored<'a> = (Key, &'a [AtomicU64], LimitsId);

/// Table of one kind of keys.
type Table<T> = HashMap<Key, T, AsItIs>;

#[derive(Default)]
struct Tables {
    small: Table<Small>,
    large: Table<Large>,
    /// When it was last searched for keys that may go.
    searched: u64,
    /// The latest moment by which keys were forgotten. A request whose clock was read before must
    /// not find a new key as of then: what was forgotten still counted.
    forgotten_by: u64,
}

impl Tables {
    fn find(&self, key: Key) -> Option<(&[AtomicU64], LimitsId)> {
        match self.small.get(&key) {
            Some(small) => Some((&small.word, small.limits)),
            None => self.large.get(&key).map(|large| (&*large.words, large.limits)),
        }
    }

    fn insert(&mut self, key: Key, words: Box<[AtomicU64]>, limits: LimitsId) {
        self.remove(key);
        match <Box<[AtomicU64; 1]>>::try_from(words) {
            Ok(word) => {
                self.small.insert(key, Small { word: *word, limits });
            }
            Err(words) => {
                self.large.insert(key, Large { words, limits });
            }
        }
    }

    fn remove(&mut self, key: Key) -> bool {
        let small = self.small.remove(&key).is_some();
        self.large.remove(&key).is_some() | small
    }

    fn len(&self) -> usize {
        self.small.len() + self.large.len()
    }

    /// A moment at which a key without words is as good as never seen.
    fn moment_of_new(&self, moment: &Moment) -> Moment {
        moment.plus(self.forgotten_by.saturating_sub(moment.now.as_nanos()))
    }

    /// Removes keys that are as good as never seen; returns how many.
    fn sweep(&mut self, known: &Known, moment: &Moment) -> usize {
        let before = self.len();
        self.forgotten_by = self.forgotten_by.max(moment.now.as_nanos());
        let drained = |words: &[AtomicU64], limits: LimitsId| {
            known.limits(limits).is_none_or(|limits| limits.is_drained(words, moment))
        };
        self.small.retain(|_, small| !drained(&small.word, small.limits));
        self.large.retain(|_, large| !drained(&large.words, large.limits));
        let removed = before - self.len();
        // A table that was large for a while gives its room back.
        if self.small.len() < self.small.capacity() / 4 {
            self.small.shrink_to_fit();
        }
        if self.large.len() < self.large.capacity() / 4 {
            self.large.shrink_to_fit();
        }
        removed
    }
}

#[derive(Default)]
#[repr(align(128))]
struct Shard(RwLock<Tables>);

impl Shard {
    // A panic of another thread leaves whole tables: nothing in them is changed in steps.
    fn read(&self) -> RwLockReadGuard<'_, Tables> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Tables> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All limits that a key may have.
#[derive(Default)]
struct Known {
    /// True for those that a request brought.
    by_id: HashMap<LimitsId, (Arc<Limits>, bool)>,
    by_text: HashMap<Box<[RequestLimit]>, LimitsId>,
    next: u32,
}

impl Known {
    fn limits(&self, id: LimitsId) -> Option<&Arc<Limits>> {
        self.by_id.get(&id).map(|(limits, _)| limits)
    }

    fn find(&self, limits: &Limits) -> Option<KeyLimits> {
        let id = *self.by_text.get(&*limits.written())?;
        Some(KeyLimits { id, limits: Arc::clone(self.limits(id)?) })
    }

    fn add(&mut self, limits: Limits, brought: bool) -> KeyLimits {
        if let Some(found) = self.find(&limits) {
            return found;
        }
        let (id, limits) = (LimitsId(self.next), Arc::new(limits));
        self.next = self.next.wrapping_add(1);
        self.by_text.insert(limits.written(), id);
        self.by_id.insert(id, (Arc::clone(&limits), brought));
        KeyLimits { id, limits }
    }
}

/// Buckets of all keys.
pub(crate) struct Store {
    shards: Box<[Shard]>,
    known: RwLock<Known>,
    keys: AtomicUsize,
    most: usize,
}

/// There is no room for one more key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// Limits of a key, with the number by which it names them.
#[derive(Clone, Debug)]
pub(crate) struct KeyLimits {
    pub(crate) id: LimitsId,
    pub(crate) limits: Arc<Limits>,
}

impl Store {
    /// A store with room for `most` keys.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            known: RwLock::default(),
            keys: AtomicUsize::new(0),
            most,
        }
    }

    /// Keys that have a bucket.
    pub(crate) fn keys(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// Keys that there is room for.
    pub(crate) const fn most(&self) -> usize {
        self.most
    }

    /// Limits by their number; none if nobody has them any more.
    pub(crate) fn of(&self, id: LimitsId) -> Option<Arc<Limits>> {
        self.known().limits(id).map(Arc::clone)
    }

    /// Makes limits known.
    pub(crate) fn limits(&self, limits: Limits) -> KeyLimits {
        self.known.write().unwrap_or_else(PoisonError::into_inner).add(limits, false)
    }

    /// Makes limits known that a request brings; none if there are too many of them.
    pub(crate) fn brought(&self, limits: Limits) -> Option<KeyLimits> {
        if let Some(found) = self.known().find(&limits) {
            return Some(found);
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.by_id.values().filter(|(_, brought)| *brought).count() >= MAX_OVERRIDES {
            return None;
        }
        Some(known.add(limits, true))
    }

    /// Makes limits known that keys had before this process; none if requests brought too many.
    pub(crate) fn of_before(&self, limits: &Limits, brought: bool) -> Option<LimitsId> {
        let limits = limits.clone();
        let found = if brought { self.brought(limits)? } else { self.limits(limits) };
        Some(found.id)
    }

    /// All limits that keys may have; true for those that a request brought.
    pub(crate) fn all_limits(&self) -> Vec<(KeyLimits, bool)> {
        let known = self.known();
        let all = known.by_id.iter().map(|(id, (limits, brought))| {
            (KeyLimits { id: *id, limits: Arc::clone(limits) }, *brought)
        });
        all.collect()
    }

    /// The keys of each shard with their words, one shard after the other. Those of a shard do not
    /// come or go meanwhile.
    pub(crate) fn each_shard<E>(
        &self,
        mut each: impl FnMut(&mut dyn Iterator<Item = Stored<'_>>) -> Result<(), E>,
    ) -> Result<(), E> {
        for shard in &self.shards {
            let tables = shard.read();
            let small = tables.small.iter().map(|(key, of)| (*key, &of.word[..], of.limits));
            let large = tables.large.iter().map(|(key, of)| (*key, &*of.words, of.limits));
            each(&mut small.chain(large))?;
        }
        Ok(())
    }

    /// Gives a key the words that it had before this process; false if there is no room for it.
    pub(crate) fn put(&self, key: Key, words: Box<[AtomicU64]>, limits: LimitsId) -> bool {
        let mut tables = self.shard(key).write();
        let room = tables.find(key).is_some() || self.room(false);
        if room {
            tables.insert(key, words, limits);
        }
        room
    }

    fn known(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn shard(&self, key: Key) -> &Shard {
        &self.shards[key.shard(SHARDS)]
    }

    /// Looks at the words of a key, or at zeros if it has none.
    pub(crate) fn look<R>(
        &self,
        key: Key,
        limits: &KeyLimits,
        moment: &Moment,
        look: impl FnOnce(&[AtomicU64], &Moment) -> R,
    ) -> R {
        let shard = self.shard(key);
        {
            let tables = shard.read();
            match tables.find(key) {
                Some((words, id)) if id == limits.id => return look(words, moment),
                Some(_) => {}
                None => {
                    let zeros = [const { AtomicU64::new(0) }; WORDS];
                    let words = zeros.get(..limits.limits.words()).unwrap_or(&zeros);
                    return look(words, &tables.moment_of_new(moment));
                }
            }
        }
        let mut tables = shard.write();
        self.converted(&mut tables, key, limits, moment);
        match tables.find(key) {
            Some((words, _)) => look(words, moment),
            None => look(&[const { AtomicU64::new(0) }; WORDS], &tables.moment_of_new(moment)),
        }
    }

    /// Runs `charge` on the words of a key, which gets some if it has none. `always` is for keys
    /// that there are only a few of, whether there is room or not.
    pub(crate) fn charge<R>(
        &self,
        key: Key,
        limits: &KeyLimits,
        moment: &Moment,
        always: bool,
        charge: impl FnOnce(&[AtomicU64], &Moment) -> R,
    ) -> Result<R, Full> {
        let shard = self.shard(key);
        if let Some((words, id)) = shard.read().find(key)
            && id == limits.id
        {
            return Ok(charge(words, moment));
        }
        let mut tables = shard.write();
        let mut at = *moment;
        if tables.find(key).is_none() {
            if !self.room(always) && !self.make_room(&mut tables, moment) {
                return Err(Full);
            }
            let words = (0..limits.limits.words()).map(|_| AtomicU64::new(0)).collect();
            tables.insert(key, words, limits.id);
            at = tables.moment_of_new(moment);
        }
        self.converted(&mut tables, key, limits, moment);
        Ok(match tables.find(key) {
            Some((words, _)) => charge(words, &at),
            None => charge(&[], &at),
        })
    }

    /// Takes a place, if there is one.
    fn room(&self, always: bool) -> bool {
        let taken = self.keys.fetch_add(1, Ordering::Relaxed);
        let room = always || taken < self.most;
        if !room {
            self.keys.fetch_sub(1, Ordering::Relaxed);
        }
        room
    }

    fn make_room(&self, tables: &mut Tables, moment: &Moment) -> bool {
        let now = moment.now.as_nanos();
        if now.saturating_sub(tables.searched) < SEARCH_APART && tables.searched != 0 {
            return false;
        }
        tables.searched = now.max(1);
        let removed = tables.sweep(&self.known(), &moment.with_wall());
        self.keys.fetch_sub(removed, Ordering::Relaxed);
        self.room(false)
    }

    /// Gives a key the limits that it has now.
    fn converted(&self, tables: &mut Tables, key: Key, limits: &KeyLimits, moment: &Moment) {
        let Some((words, id)) = tables.find(key).filter(|(_, id)| *id != limits.id) else {
            return;
        };
        let old = self.known().limits(id).map(Arc::clone);
        let words = match old {
            Some(old) => limits.limits.convert(&old, words, moment),
            None => (0..limits.limits.words()).map(|_| AtomicU64::new(0)).collect(),
        };
        tables.insert(key, words, limits.id);
    }

    /// Searches some shards for keys that are as good as never seen; `round` says which.
    pub(crate) fn sweep(&self, round: usize, of: usize, moment: &Moment) {
        for shard in self.shards.iter().skip(round % of.max(1)).step_by(of.max(1)) {
            let mut tables = shard.write();
            let removed = tables.sweep(&self.known(), moment);
            drop(tables);
            self.keys.fetch_sub(removed, Ordering::Relaxed);
        }
    }

    /// Forgets limits of rules that no key has and `in_use` does not name.
    pub(crate) fn forget_limits(&self, in_use: &[LimitsId]) {
        let newest = self.known().next;
        let mut found: BTreeSet<LimitsId> = in_use.iter().copied().collect();
        for shard in &self.shards {
            let tables = shard.read();
            found.extend(tables.small.values().map(|small| small.limits));
            found.extend(tables.large.values().map(|large| large.limits));
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let Known { by_id, by_text, .. } = &mut *known;
        by_id.retain(|id, (_, brought)| *brought || id.0 >= newest || found.contains(id));
        by_text.retain(|_, id| by_id.contains_key(id));
    }

    /// Takes charges of a key back: true if nobody charged it since, and it has the same limits, or
    /// if the key is gone, for then nothing of it was used any more.
    pub(crate) fn take_back(
        &self,
        key: Key,
        limits: LimitsId,
        take: impl FnOnce(&[AtomicU64]) -> bool,
    ) -> bool {
        let tables = self.shard(key).read();
        tables.find(key).is_none_or(|(words, id)| id == limits && take(words))
    }
}
