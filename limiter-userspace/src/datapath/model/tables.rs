//! The tables of the model: ordinary collections behind the same traits as the kernel's maps.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use limiter_common::algorithm::Words;
use limiter_common::algorithm::window::WallOffset;
use limiter_common::bucket::{Generation, Resolved, Slot};
use limiter_common::table::flow::FlowKey;
use limiter_common::time::Ticks;
use limiter_common::wire::{
    Action, KeyedBucket, OwnBudget, Record, RuleSetHeader, Shape, Table, TableKey, TrieValue, WORDS,
};
use limiter_common::world::Keyed;

use crate::rules::TablesPlan;

/// A bucket of a table, or a budget.
#[derive(Debug, Default)]
struct ModelBucket {
    resolved: AtomicU64,
    passed: AtomicU64,
    dropped: AtomicU64,
    used: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// A shared [`ModelBucket`].
#[derive(Clone, Debug)]
pub struct ModelKeyed(Arc<ModelBucket>);

impl ModelKeyed {
    pub(super) fn begun(resolved: u64) -> Self {
        Self(Arc::new(ModelBucket { resolved: resolved.into(), ..ModelBucket::default() }))
    }

    /// One as it stands in the map.
    pub(super) fn of(bucket: &KeyedBucket) -> Self {
        let KeyedBucket { resolved, passed, dropped, used, words } = *bucket;
        Self(Arc::new(ModelBucket {
            resolved: resolved.into(),
            passed: passed.into(),
            dropped: dropped.into(),
            used: used.into(),
            words: words.map(AtomicU64::new),
        }))
    }

    pub(super) fn bucket(&self) -> KeyedBucket {
        let load = |word: &AtomicU64| word.load(Ordering::Acquire);
        KeyedBucket {
            resolved: load(&self.0.resolved),
            passed: load(&self.0.passed),
            dropped: load(&self.0.dropped),
            used: load(&self.0.used),
            words: std::array::from_fn(|index| self.0.words.get(index).map_or(0, load)),
        }
    }
}

/// One word of a shared bucket.
#[derive(Clone, Debug)]
pub struct ModelWord(Arc<ModelBucket>, usize);

impl limiter_common::cell::Cell for ModelWord {
    fn load(&self) -> u64 {
        self.0.words.get(self.1).map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn compare_exchange(&self, current: u64, new: u64) -> bool {
        self.0.words.get(self.1).is_some_and(|word| {
            word.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
        })
    }
}

impl Words for ModelKeyed {
    type Cell = ModelWord;

    fn cell(&self, index: u32) -> Option<ModelWord> {
        let index = usize::try_from(index).ok().filter(|index| *index < WORDS)?;
        Some(ModelWord(Arc::clone(&self.0), index))
    }
}

impl Keyed for ModelKeyed {
    fn first(&self) -> impl limiter_common::cell::Cell {
        ModelWord(Arc::clone(&self.0), 0)
    }

    fn resolved(&self) -> impl limiter_common::cell::Cell {
        &self.0.resolved
    }

    fn count(&self, passed: bool, add: bool) {
        let counter = if passed { &self.0.passed } else { &self.0.dropped };
        counter.fetch_add(if add { 1 } else { u64::MAX }, Ordering::Relaxed);
    }

    fn touch(&self, now: Ticks) {
        self.0.used.store(now.get(), Ordering::Relaxed);
    }

    fn used(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }

    fn packets(&self) -> u64 {
        let [passed, dropped] =
            [&self.0.passed, &self.0.dropped].map(|count| count.load(Ordering::Relaxed));
        passed.wrapping_add(dropped)
    }
}

/// One rule set's tables.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    header: RuleSetHeader,
    pub(super) tables: Vec<(Table, Vec<Shape>)>,
    pub(super) trie: Vec<(TableKey, u32, TrieValue)>,
    replies: u64,
    bans: u64,
}

/// The maps beside the source table's.
#[derive(Debug, Default)]
pub(super) struct ModelTables {
    buffers: [Buffer; 2],
    pub(super) records: BTreeMap<u32, Record>,
    pub(super) actions: BTreeMap<u32, Action>,
    pub(super) keyed: RwLock<HashMap<TableKey, ModelKeyed>>,
    pub(super) budgets: BTreeMap<u32, ModelKeyed>,
    pub(super) overflow: RwLock<BTreeMap<u32, ModelKeyed>>,
    pub(super) flows: RwLock<HashMap<FlowKey, Ticks>>,
    pub(super) offset: WallOffset,
    pub(super) interfaces: BTreeSet<u32>,
    pub(super) cpus: BTreeSet<u32>,
}

impl ModelTables {
    /// Writes records into their slots.
    pub(super) fn write_records(&mut self, records: Vec<(u32, Record)>) {
        self.records.extend(records);
    }

    /// Removes the entry of a key.
    pub(super) fn remove(&self, key: &TableKey) {
        self.keyed.write().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    pub(super) fn commit(&mut self, generation: u64, plan: TablesPlan) {
        // As of the rule set before: the first packet points it at its record.
        let before = Generation::new(generation.wrapping_sub(1));
        let begun = Resolved::new(before, Slot::NONE, Slot::NONE, false);
        for index in plan.begun_budgets {
            self.budgets.insert(index, ModelKeyed::begun(begun.raw()));
        }
        self.write_records(plan.records);
        self.actions.extend(plan.actions);
        self.interfaces.extend(plan.interfaces.into_iter().map(|(index, _)| index));
        self.cpus.extend(plan.cpus);
        if let Some(buffer) = self.buffers.get_mut(usize::from(generation % 2 == 1)) {
            let TablesPlan { header, tables, trie, replies, bans, .. } = plan;
            *buffer = Buffer { header, tables, trie, replies, bans };
        }
    }

    pub(super) fn header(&self, generation: Generation) -> RuleSetHeader {
        self.buffer(generation).header
    }

    /// Puts the rule set of a generation on trial, or ends that.
    pub(super) fn set_trial(&mut self, generation: u64, on_trial: bool) {
        if let Some(buffer) = self.buffers.get_mut(usize::from(generation % 2 == 1)) {
            buffer.header = buffer.header.with_trial(on_trial);
        }
    }

    /// What the word of one of the limiter's own budgets says.
    pub(super) fn own_budget(&self, generation: Generation, budget: OwnBudget) -> u64 {
        let buffer = self.buffer(generation);
        match budget {
            OwnBudget::Replies => buffer.replies,
            OwnBudget::Bans => buffer.bans,
        }
    }

    pub(super) fn bucket(&self, key: &TableKey) -> Option<KeyedBucket> {
        let keyed = self.keyed.read().unwrap_or_else(PoisonError::into_inner);
        keyed.get(key).map(ModelKeyed::bucket)
    }

    /// What keys without a bucket share.
    pub(super) fn shared(&self, index: u32) -> Option<KeyedBucket> {
        let overflow = self.overflow.read().unwrap_or_else(PoisonError::into_inner);
        overflow.get(&index).map(ModelKeyed::bucket)
    }

    pub(super) fn all_buckets(&self) -> Vec<(TableKey, KeyedBucket)> {
        let keyed = self.keyed.read().unwrap_or_else(PoisonError::into_inner);
        keyed.iter().map(|(key, bucket)| (*key, bucket.bucket())).collect()
    }

    pub(super) fn tracked(&self) -> usize {
        let keyed = self.keyed.read().unwrap_or_else(PoisonError::into_inner);
        let flows = self.flows.read().unwrap_or_else(PoisonError::into_inner);
        keyed.len() + flows.len()
    }

    pub(super) fn budget(&self, index: u32) -> Option<KeyedBucket> {
        self.budgets.get(&index).map(ModelKeyed::bucket)
    }

    pub(super) fn buffer(&self, generation: Generation) -> &Buffer {
        let [even, odd] = &self.buffers;
        if generation.buffer() == 0 { even } else { odd }
    }
}

pub(super) fn bits(key: &TableKey) -> [u8; 48] {
    bytemuck::cast(*key)
}

/// Whether two keys have the same first `length` bits.
pub(super) fn same_prefix(a: &[u8; 48], b: &[u8; 48], length: u32) -> bool {
    let mut left = length;
    a.iter().zip(b).all(|(a, b)| {
        let here = left.min(8);
        left -= here;
        (a ^ b).checked_shr(8 - here).unwrap_or(0) == 0
    })
}
