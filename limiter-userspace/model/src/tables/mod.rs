//! The tables of the model: ordinary collections behind the same traits as the kernel's maps.

pub(crate) mod keyed;
pub(crate) mod lines;
pub(crate) mod source_bucket;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use limiter_common::bucket::{Generation, Resolved, Slot};
use limiter_common::time::Ticks;
use limiter_common::window::WallOffset;
use limiter_common::wire::{
    Action, ActionKind, Ask, FlowKey, HostLease, KeyLeases, KeyedBucket, Lease, MAX_BUDGETS,
    OwnBudget, Record, RuleSetHeader, Shape, Table, TableKey, TrieValue,
};
use limiter_decision::cell::Cell as _;
use limiter_rules::TablesPlan;

use self::keyed::ModelKeyed;
use super::entries::WordRef;

#[derive(Clone, Debug, Default)]
pub(super) struct Buffer {
    pub(super) header: RuleSetHeader,
    pub(super) tables: BTreeMap<u32, (Table, Vec<Shape>)>,
    pub(super) trie: Vec<(TableKey, u32, TrieValue)>,
    pub(super) replies: u64,
    pub(super) bans: u64,
}

/// The maps other than the source table's.
#[derive(Debug, Default)]
pub(super) struct ModelTables {
    pub(super) buffers: [Buffer; 2],
    pub(super) records: BTreeMap<u32, Record>,
    pub(super) actions: BTreeMap<u32, Action>,
    pub(super) keyed: RwLock<HashMap<TableKey, ModelKeyed>>,
    pub(super) budgets: BTreeMap<u32, ModelKeyed>,
    /// Entries from [`MAX_BUDGETS`] on.
    pub(super) overflow: RwLock<BTreeMap<u32, ModelKeyed>>,
    pub(super) leases: RwLock<BTreeMap<u32, Arc<HostLease>>>,
    /// Words of [`KeyLeases`].
    pub(super) leased: RwLock<HashMap<TableKey, WordRef>>,
    /// Requests that the daemon has not read.
    pub(super) asks: Mutex<Vec<Ask>>,
    pub(super) flows: RwLock<HashMap<FlowKey, Ticks>>,
    pub(super) offset: WallOffset,
    pub(super) interfaces: BTreeSet<u32>,
    pub(super) cpus: BTreeSet<u32>,
}

impl ModelTables {
    /// A copy with its own buckets.
    pub(super) fn copy(&self) -> Self {
        fn copied<K: Copy, C: FromIterator<(K, ModelKeyed)>>(
            buckets: impl IntoIterator<Item = (K, ModelKeyed)>,
        ) -> C {
            let copy = |(key, of): (K, ModelKeyed)| (key, ModelKeyed::of(&of.bucket()));
            buckets.into_iter().map(copy).collect()
        }
        let keyed = self.keyed.read().unwrap_or_else(PoisonError::into_inner).clone();
        let overflow = self.overflow.read().unwrap_or_else(PoisonError::into_inner).clone();
        let leases = self.leases.read().unwrap_or_else(PoisonError::into_inner);
        let leases =
            leases.iter().map(|(index, lease)| (*index, HostLease::of(&lease.read()).into()));
        let of_keys = self.leased.read().unwrap_or_else(PoisonError::into_inner);
        let of_keys = of_keys.iter().map(|(key, word)| (*key, WordRef::new(word.load()))).collect();
        let flows = self.flows.read().unwrap_or_else(PoisonError::into_inner).clone();
        Self {
            buffers: self.buffers.clone(),
            records: self.records.clone(),
            actions: self.actions.clone(),
            keyed: RwLock::new(copied(keyed)),
            budgets: copied(self.budgets.clone()),
            overflow: RwLock::new(copied(overflow)),
            leases: RwLock::new(leases.collect()),
            leased: RwLock::new(of_keys),
            asks: Mutex::default(),
            flows: RwLock::new(flows),
            offset: self.offset,
            interfaces: self.interfaces.clone(),
            cpus: self.cpus.clone(),
        }
    }

    /// Stores an action, and registers its target.
    pub(super) fn put_action(&mut self, index: u32, action: Action) {
        match action.kind() {
            ActionKind::Interface => drop(self.interfaces.insert(action.target)),
            ActionKind::Cpu => drop(self.cpus.insert(action.target)),
            _ => {}
        }
        self.actions.insert(index, action);
    }

    pub(super) fn put_keyed(&mut self, key: TableKey, bucket: &KeyedBucket) {
        let keyed = self.keyed.get_mut().unwrap_or_else(PoisonError::into_inner);
        keyed.insert(key, ModelKeyed::of(bucket));
    }

    pub(super) fn put_budget(&mut self, index: u32, bucket: &KeyedBucket) {
        let overflow = self.overflow.get_mut().unwrap_or_else(PoisonError::into_inner);
        let place = if index < MAX_BUDGETS { &mut self.budgets } else { overflow };
        place.insert(index, ModelKeyed::of(bucket));
    }

    /// A lease. Makes it if there is none.
    pub(super) fn lease(&self, index: u32) -> Arc<HostLease> {
        let mut leases = self.leases.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(leases.entry(index).or_default())
    }

    pub(super) fn put_lease(&mut self, index: u32, lease: &Lease) {
        let leases = self.leases.get_mut().unwrap_or_else(PoisonError::into_inner);
        leases.insert(index, HostLease::of(lease).into());
    }

    pub(super) fn leased(&self, key: &TableKey) -> Option<WordRef> {
        self.leased.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    pub(super) fn ask(&self, ask: Ask) {
        self.asks.lock().unwrap_or_else(PoisonError::into_inner).push(ask);
    }

    pub(super) fn take_asks(&self) -> Vec<Ask> {
        std::mem::take(&mut *self.asks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Removes the leases of all keys, and their requests.
    pub(super) fn forget_keys(&self) {
        self.leased.write().unwrap_or_else(PoisonError::into_inner).clear();
        self.take_asks();
    }

    /// Sets the leases of a key. `None` removes its entry.
    pub(super) fn set_leased(&self, key: &TableKey, leases: Option<KeyLeases>) {
        let mut of_keys = self.leased.write().unwrap_or_else(PoisonError::into_inner);
        match leases {
            Some(leases) => drop(of_keys.insert(*key, WordRef::new(leases.raw()))),
            None => drop(of_keys.remove(key)),
        }
    }

    pub(super) fn write_records(&mut self, records: Vec<(u32, Record)>) {
        self.records.extend(records);
    }

    pub(super) fn remove(&self, key: &TableKey) {
        self.keyed.write().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    pub(super) fn commit(&mut self, generation: u64, plan: TablesPlan) {
        // Resolved as of the previous rule set: the first packet points it at its record.
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
            let tables = (0..).zip(tables).collect();
            *buffer = Buffer { header, tables, trie, replies, bans };
        }
    }

    pub(super) fn header(&self, generation: Generation) -> RuleSetHeader {
        self.buffer(generation).header
    }

    /// Marks the rule set of a generation as on trial, or ends the trial.
    pub(super) fn set_trial(&mut self, generation: u64, on_trial: bool) {
        if let Some(buffer) = self.buffers.get_mut(usize::from(generation % 2 == 1)) {
            buffer.header = buffer.header.with_trial(on_trial);
        }
    }

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

    /// The bucket shared by keys without their own.
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

    pub(super) fn buffer_mut(&mut self, generation: Generation) -> &mut Buffer {
        let [even, odd] = &mut self.buffers;
        if generation.buffer() == 0 { even } else { odd }
    }
}

pub(super) fn bits(key: &TableKey) -> [u8; KEY_BYTES] {
    let mut bits = [0; KEY_BYTES];
    bits.copy_from_slice(bytemuck::bytes_of(key));
    bits
}

const KEY_BYTES: usize = size_of::<TableKey>();

pub(super) fn same_prefix(a: &[u8; KEY_BYTES], b: &[u8; KEY_BYTES], length: u32) -> bool {
    let mut left = length;
    a.iter().zip(b).all(|(a, b)| {
        let here = left.min(8);
        left -= here;
        (a ^ b).checked_shr(8 - here).unwrap_or(0) == 0
    })
}
