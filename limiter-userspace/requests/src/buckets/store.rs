//! Buckets in memory: bounded, and changed by many threads at once.
//!
//! A shard is a table behind a lock. A decision takes the lock for reading, and changes the words
//! of its key by compare-and-exchange; only a key that comes or goes takes the lock for writing. A
//! key of one word costs 32 bytes, and a table is between 44 % and 88 % full: 38 to 76 bytes a key.

use std::collections::{BTreeSet, HashMap};
use std::mem::size_of;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use limiter_common::wire::WORDS;
use limiter_rules::file::requests::RequestLimit;

use crate::buckets::arithmetic::Limits;
use crate::buckets::key::{AsItIs, Key};
use crate::buckets::looks::Looks;
use crate::clock::Moment;

/// Shards: a power of two. Those that two threads want at once are rarely the same.
const SHARDS: usize = 256;

/// Nanoseconds between two searches of a full shard for keys that may go, so that a full table
/// costs a request no more than a look.
const SEARCH_APART: u64 = 100_000_000;

/// Most different limits at once that requests bring themselves. Those that no key has are
/// forgotten.
pub(crate) const MOST_BROUGHT: usize = 1 << 16;

/// The number of limits that are in use, by which a key names its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LimitsId(u32);

/// A key with one word.
struct Small {
    word: [AtomicU64; 1],
    limits: LimitsId,
    looks: Looks,
}

/// A key with several words.
struct Large {
    words: Box<[AtomicU64]>,
    limits: LimitsId,
    looks: Looks,
}

const _: () = assert!(size_of::<(Key, Small)>() == 32);

pub(crate) type Stored<'a> = (Key, &'a [AtomicU64], LimitsId, &'a Looks);

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

    fn looks(&self, key: Key) -> Option<&Looks> {
        let of_small = self.small.get(&key).map(|small| &small.looks);
        of_small.or_else(|| self.large.get(&key).map(|large| &large.looks))
    }

    fn insert(&mut self, key: Key, words: Box<[AtomicU64]>, limits: LimitsId, looks: Looks) {
        self.remove(key);
        match <Box<[AtomicU64; 1]>>::try_from(words) {
            Ok(word) => {
                self.small.insert(key, Small { word: *word, limits, looks });
            }
            Err(words) => {
                self.large.insert(key, Large { words, limits, looks });
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

    /// Removes keys that are as good as never seen; returns how many. Those with looks stay if
    /// `looks` says so.
    fn sweep(&mut self, known: &Known, moment: &Moment, looks: bool) -> usize {
        let before = self.len();
        let now = moment.now.as_nanos();
        let waits = |of: &Looks| looks && of.are_there(now);
        self.forgotten_by = self.forgotten_by.max(moment.now.as_nanos());
        let drained = |words: &[AtomicU64], limits: LimitsId| {
            known.by_id.get(&limits).is_none_or(|of| {
                let drained = of.limits.is_drained(words, moment);
                if !drained {
                    known.use_of(of);
                }
                drained
            })
        };
        self.small.retain(|_, of| !drained(&of.word, of.limits) || waits(&of.looks));
        self.large.retain(|_, of| !drained(&of.words, of.limits) || waits(&of.looks));
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
    by_id: HashMap<LimitsId, KnownLimits>,
    by_text: HashMap<Box<[RequestLimit]>, LimitsId>,
    next: u32,
    /// How many a request brought.
    brought: usize,
    /// Searches of all keys, by which limits that nobody uses are found.
    rounds: u64,
}

/// Limits that a key may have.
struct KnownLimits {
    limits: Arc<Limits>,
    /// For limits that a request brought: the latest round in which a request brought them or a key
    /// had them.
    used: Option<AtomicU64>,
}

impl Known {
    fn limits(&self, id: LimitsId) -> Option<&Arc<Limits>> {
        self.by_id.get(&id).map(|of| &of.limits)
    }

    fn use_of(&self, of: &KnownLimits) {
        if let Some(used) = &of.used {
            used.store(self.rounds, Ordering::Relaxed);
        }
    }

    fn find(&self, written: &[RequestLimit]) -> Option<KeyLimits> {
        let id = *self.by_text.get(written)?;
        let of = self.by_id.get(&id)?;
        self.use_of(of);
        Some(KeyLimits { id, limits: Arc::clone(&of.limits), since: u64::MAX })
    }

    fn add(&mut self, limits: Limits, brought: bool) -> KeyLimits {
        if let Some(found) = self.find(&limits.written()) {
            // A rule has it as well.
            let of = self.by_id.get_mut(&found.id).filter(|_| !brought);
            self.brought -= usize::from(of.is_some_and(|of| of.used.take().is_some()));
            return found;
        }
        let (id, limits) = (LimitsId(self.next), Arc::new(limits));
        self.next = self.next.wrapping_add(1);
        self.by_text.insert(limits.written(), id);
        let used = brought.then(|| AtomicU64::new(self.rounds));
        self.brought += usize::from(brought);
        self.by_id.insert(id, KnownLimits { limits: Arc::clone(&limits), used });
        KeyLimits { id, limits, since: u64::MAX }
    }

    /// Forgets all but some.
    fn retain(&mut self, keep: impl Fn(LimitsId, &KnownLimits) -> bool) {
        self.by_id.retain(|id, of| keep(*id, of));
        self.by_text.retain(|_, id| self.by_id.contains_key(id));
        self.brought = self.by_id.values().filter(|of| of.used.is_some()).count();
    }
}

pub(crate) struct Store {
    shards: Box<[Shard]>,
    known: RwLock<Known>,
    keys: AtomicUsize,
    /// True once a key had a look: until then a request with hits looks for none.
    has_looks: AtomicBool,
    most: usize,
}

/// There is no room for one more key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

/// Limits of a key, with the number by which it names them.
#[derive(Clone, Debug)]
pub struct KeyLimits {
    pub(crate) id: LimitsId,
    pub(crate) limits: Arc<Limits>,
    /// When a rule got them, in nanoseconds since boot: until then, its keys have the previous
    /// limits. The largest number if a request brings them.
    pub(crate) since: u64,
}

impl KeyLimits {
    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }
}

impl Store {
    /// A store with room for `most` keys.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            known: RwLock::default(),
            keys: AtomicUsize::new(0),
            has_looks: AtomicBool::new(false),
            most,
        }
    }

    pub(crate) fn keys(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// Keys that there is room for.
    pub(crate) const fn most(&self) -> usize {
        self.most
    }

    /// Limits by their number; `None` if nobody has them any more.
    pub(crate) fn of(&self, id: LimitsId) -> Option<Arc<Limits>> {
        self.known().limits(id).map(Arc::clone)
    }

    pub(crate) fn limits(&self, limits: Limits) -> KeyLimits {
        self.known.write().unwrap_or_else(PoisonError::into_inner).add(limits, false)
    }

    pub(crate) fn known_brought(&self, limit: RequestLimit) -> Option<KeyLimits> {
        self.known().find(&[limit])
    }

    /// Registers limits that a request brings; `None` if there are too many of them. `always` is
    /// for the few limits that are registered whether there is room or not.
    pub(crate) fn brought(&self, limits: Limits, always: bool) -> Option<KeyLimits> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let room = always || known.brought < MOST_BROUGHT;
        room.then(|| known.add(limits, true))
    }

    /// Different limits that requests brought.
    pub(crate) fn count_brought(&self) -> usize {
        self.known().brought
    }

    /// Registers limits that keys had before this process started; `None` if requests brought too
    /// many.
    pub(crate) fn of_before(&self, limits: &Limits, brought: bool) -> Option<LimitsId> {
        let limits = limits.clone();
        let found = if brought { self.brought(limits, false)? } else { self.limits(limits) };
        Some(found.id)
    }

    /// All limits that keys may have; true for those that a request brought.
    pub(crate) fn all_limits(&self) -> Vec<(KeyLimits, bool)> {
        let known = self.known();
        let all = known.by_id.iter().map(|(id, of)| {
            let limits = Arc::clone(&of.limits);
            (KeyLimits { id: *id, limits, since: u64::MAX }, of.used.is_some())
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
            let small =
                tables.small.iter().map(|(key, of)| (*key, &of.word[..], of.limits, &of.looks));
            let large =
                tables.large.iter().map(|(key, of)| (*key, &*of.words, of.limits, &of.looks));
            each(&mut small.chain(large))?;
        }
        Ok(())
    }

    /// Gives a key the words that it had before this process; false if there is no room for it.
    pub(crate) fn put(
        &self,
        key: Key,
        words: Box<[AtomicU64]>,
        limits: LimitsId,
        looks: Looks,
    ) -> bool {
        let mut tables = self.shard(key).write();
        let room = tables.find(key).is_some() || self.room(false);
        if room {
            self.has_looks.fetch_or(looks.raw() != 0, Ordering::Relaxed);
            tables.insert(key, words, limits, looks);
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
    ) -> Result<R, NoRoom> {
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
                return Err(NoRoom);
            }
            let words = (0..limits.limits.words()).map(|_| AtomicU64::new(0)).collect();
            tables.insert(key, words, limits.id, Looks::default());
            at = tables.moment_of_new(moment);
        }
        self.converted(&mut tables, key, limits, moment);
        Ok(match tables.find(key) {
            Some((words, _)) => charge(words, &at),
            None => charge(&[], &at),
        })
    }

    /// Notes a look of a key that passed, if there is room for it.
    pub(crate) fn add_look(&self, key: Key, limits: &KeyLimits, moment: &Moment) {
        if self.charge(key, limits, moment, false, |_, _| ()).is_ok()
            && let Some(looks) = self.shard(key).read().looks(key)
        {
            self.has_looks.store(true, Ordering::Relaxed);
            looks.add(moment.now.as_nanos());
        }
    }

    /// Takes a look of a key, if one passed lately.
    pub(crate) fn take_look(&self, key: Key, moment: &Moment) -> bool {
        self.has_looks.load(Ordering::Relaxed)
            && self.shard(key).read().looks(key).is_some_and(|of| of.take(moment.now.as_nanos()))
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
        let removed = tables.sweep(&self.known(), &moment.with_wall(), false);
        self.keys.fetch_sub(removed, Ordering::Relaxed);
        self.room(false)
    }

    /// Gives a key the limits that it has now, as of the moment at which its rule got them.
    fn converted(&self, tables: &mut Tables, key: Key, limits: &KeyLimits, moment: &Moment) {
        let Some((words, id)) = tables.find(key).filter(|(_, id)| *id != limits.id) else {
            return;
        };
        let old = self.known().limits(id).map(Arc::clone);
        let words = match old {
            Some(old) => limits.limits.convert(&old, words, &moment.not_after(limits.since)),
            None => (0..limits.limits.words()).map(|_| AtomicU64::new(0)).collect(),
        };
        let looks = tables.looks(key).map_or(0, Looks::raw);
        tables.insert(key, words, limits.id, Looks::from_raw(looks));
    }

    /// Searches some shards for keys that are as good as never seen; `round` says which. After the
    /// last of them, limits are forgotten that requests brought and that no key has.
    pub(crate) fn sweep(&self, round: usize, of: usize, moment: &Moment) {
        let of = of.max(1);
        for shard in self.shards.iter().skip(round % of).step_by(of) {
            let mut tables = shard.write();
            let removed = tables.sweep(&self.known(), moment, true);
            drop(tables);
            self.keys.fetch_sub(removed, Ordering::Relaxed);
        }
        if round % of == of - 1 && self.count_brought() > 0 {
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            let round = known.rounds;
            let used = |used: &AtomicU64| used.load(Ordering::Relaxed) >= round;
            known.retain(|_, of| of.used.as_ref().is_none_or(used));
            known.rounds += 1;
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
        known.retain(|id, of| of.used.is_some() || id.0 >= newest || found.contains(&id));
    }

    /// Takes back charges of a key. True if nobody charged it since and it has the same limits, or
    /// if the key is gone: then nothing of it was in use any more.
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
