//! Bans of the model, and the connections that bans may ask for.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use limiter_common::source::Source;
use limiter_common::wire::{Ban, FlowKey};
use limiter_decision::ban::Entry;
use limiter_decision::cell::Cell;

/// The words of a ban.
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
    /// Bytes of what is shared.
    pub(super) const SIZE: usize = size_of::<ModelBan>();

    /// A record as it stands in the map.
    pub(super) fn of(ban: &Ban) -> Self {
        let Ban { until, history, rule } = *ban;
        let (until, history, rule) = (until.into(), history.into(), rule.into());
        Self(Arc::new(ModelBan { until, history, rule }))
    }

    /// The record as it stands.
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

/// Sources on record, and the connections that there are.
#[derive(Debug, Default)]
pub(super) struct ModelBans {
    pub(super) by_source: RwLock<HashMap<[u8; 16], ModelBanRef>>,
    pub(super) connections: BTreeSet<FlowKey>,
}

impl ModelBans {
    /// Makes a record of zeros, if there is none.
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

    /// Puts a source on record.
    pub(super) fn put(&mut self, source: &Source, ban: &Ban) {
        let bans = self.by_source.get_mut().unwrap_or_else(PoisonError::into_inner);
        bans.insert(source.trie_key(), ModelBanRef::of(ban));
    }

    /// A copy with records of its own.
    pub(super) fn copy(&self) -> Self {
        let bans = self.by_source.read().unwrap_or_else(PoisonError::into_inner);
        let bans = bans.iter().map(|(source, ban)| (*source, ModelBanRef::of(&ban.read())));
        Self { by_source: RwLock::new(bans.collect()), connections: self.connections.clone() }
    }
}
