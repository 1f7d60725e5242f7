//! Bans of the model, and the connections that the decision about bans looks up.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use limiter_common::source::Source;
use limiter_common::wire::{Ban, FlowKey};
use limiter_decision::ban::Entry;
use limiter_decision::cell::Cell;

#[derive(Debug, Default)]
struct ModelBan {
    until: AtomicU64,
    history: AtomicU64,
    rule: AtomicU64,
}

/// A shared record of a source.
#[derive(Clone, Debug, Default)]
pub struct ModelBanRef(Arc<ModelBan>);

impl ModelBanRef {
    /// Bytes of the shared value.
    pub(super) const SIZE: usize = size_of::<ModelBan>();

    /// Makes a record from its stored form.
    pub(super) fn of(ban: &Ban) -> Self {
        let Ban { until, history, rule } = *ban;
        let (until, history, rule) = (until.into(), history.into(), rule.into());
        Self(Arc::new(ModelBan { until, history, rule }))
    }

    /// The stored form of the record.
    pub(super) fn read(&self) -> Ban {
        Ban { until: self.until().load(), history: self.history().load(), rule: self.rule().load() }
    }
}

struct Word(Arc<ModelBan>, fn(&ModelBan) -> &AtomicU64);

impl Cell for Word {
    fn load(&self) -> u64 {
        (self.1)(&self.0).load(Ordering::Acquire)
    }

    fn compare_exchange(&self, current: u64, new: u64) -> bool {
        let word = (self.1)(&self.0);
        word.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

impl Entry for ModelBanRef {
    fn until(&self) -> impl Cell {
        Word(Arc::clone(&self.0), |ban| &ban.until)
    }

    fn history(&self) -> impl Cell {
        Word(Arc::clone(&self.0), |ban| &ban.history)
    }

    fn rule(&self) -> impl Cell {
        Word(Arc::clone(&self.0), |ban| &ban.rule)
    }
}

/// The bans of sources, and the established connections.
#[derive(Debug, Default)]
pub(super) struct ModelBans {
    pub(super) by_source: RwLock<HashMap<[u8; 16], ModelBanRef>>,
    pub(super) connections: BTreeSet<FlowKey>,
}

impl ModelBans {
    /// Inserts a zeroed record if there is none.
    pub(super) fn insert(&self, source: &Source) {
        let mut bans = self.by_source.write().unwrap_or_else(PoisonError::into_inner);
        bans.entry(source.trie_key()).or_default();
    }

    pub(super) fn get(&self, source: &Source) -> Option<ModelBanRef> {
        let bans = self.by_source.read().unwrap_or_else(PoisonError::into_inner);
        bans.get(&source.trie_key()).cloned()
    }

    pub(super) fn tracked(&self) -> usize {
        self.by_source.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(super) fn put(&mut self, source: &Source, ban: &Ban) {
        let bans = self.by_source.get_mut().unwrap_or_else(PoisonError::into_inner);
        bans.insert(source.trie_key(), ModelBanRef::of(ban));
    }

    /// A copy that shares no records with the original.
    pub(super) fn copy(&self) -> Self {
        let bans = self.by_source.read().unwrap_or_else(PoisonError::into_inner);
        let bans = bans.iter().map(|(source, ban)| (*source, ModelBanRef::of(&ban.read())));
        Self { by_source: RwLock::new(bans.collect()), connections: self.connections.clone() }
    }
}
