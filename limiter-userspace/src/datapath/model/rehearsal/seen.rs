//! What was read of the maps: each entry once, so that all that is asked of it is of one moment.

use std::cell::RefCell;

use limiter_common::bucket::{Generation, Slot};
use limiter_common::source::Source;
use limiter_common::table::flow::FlowKey;
use limiter_common::wire::{
    Action, Admission, Ban, Bucket, Control, KeyedBucket, Lane, Limit, ListEntry, Moment, Record,
    Shape, Space, Table, TableKey, TrieValue,
};

use super::kept::Kept;
use crate::datapath::{DatapathError, Reading};

/// A look at the maps, for one question.
pub struct Seen<'m> {
    maps: &'m dyn Reading,
    /// Bits of [`limiter_common::wire::field`] that are known of the packet. Tables that ask for more are
    /// left out.
    pub(super) known: u32,
    failed: RefCell<Option<DatapathError>>,
    moments: Kept<u32, Moment>,
    control: Kept<u32, u64>,
    listed: Kept<(Source, bool), ListEntry>,
    bans: Kept<Source, Ban>,
    slots: Kept<(Generation, Source), Slot>,
    limits: Kept<Slot, Limit>,
    buckets: Kept<Source, Bucket>,
    aggregates: Kept<u32, u64>,
    spaces: Kept<Lane, Space>,
    admissions: Kept<Lane, Vec<Admission>>,
    tables: Kept<(Generation, u32), Table>,
    shapes: Kept<(Generation, u32, u32), Shape>,
    rules: Kept<(Generation, TableKey), TrieValue>,
    records: Kept<Slot, Record>,
    actions: Kept<u32, Action>,
    keyed: Kept<TableKey, KeyedBucket>,
    budgets: Kept<u32, KeyedBucket>,
    flows: Kept<FlowKey, u64>,
}

impl<'m> Seen<'m> {
    /// Nothing yet. Tables that ask for facts of a packet that are not `known` are left out.
    pub fn new(maps: &'m dyn Reading, known: u32) -> Self {
        Self {
            maps,
            known,
            failed: RefCell::default(),
            moments: Kept::default(),
            control: Kept::default(),
            listed: Kept::default(),
            bans: Kept::default(),
            slots: Kept::default(),
            limits: Kept::default(),
            buckets: Kept::default(),
            aggregates: Kept::default(),
            spaces: Kept::default(),
            admissions: Kept::default(),
            tables: Kept::default(),
            shapes: Kept::default(),
            rules: Kept::default(),
            records: Kept::default(),
            actions: Kept::default(),
            keyed: Kept::default(),
            budgets: Kept::default(),
            flows: Kept::default(),
        }
    }

    /// Passes on an answer, if everything that it is made of could be read.
    ///
    /// # Errors
    ///
    /// The first one of the reads so far.
    pub fn sound<T>(&self, answer: T) -> Result<T, DatapathError> {
        match self.failed.take() {
            Some(error) => Err(error),
            None => Ok(answer),
        }
    }

    fn note<T>(&self, read: Result<Option<T>, DatapathError>) -> Option<T> {
        read.unwrap_or_else(|error| {
            self.failed.borrow_mut().get_or_insert(error);
            None
        })
    }

    /// The word of `CHANGES` at the place of a generation.
    pub(super) fn moment(&self, generation: u32) -> Moment {
        let read = || self.note(self.maps.moment(generation).map(Some));
        self.moments.get(generation, read).copied().unwrap_or_default()
    }

    /// A word of `CONTROL`.
    pub(super) fn control(&self, word: Control) -> u64 {
        let read = || self.note(self.maps.control(word).map(Some));
        self.control.get(word.index(), read).copied().unwrap_or_default()
    }

    pub(super) fn listed(&self, source: &Source, around: bool) -> Option<&ListEntry> {
        self.listed.get((*source, around), || {
            let maps = self.maps;
            self.note(if around { maps.listed_around(source) } else { maps.listed(source) })
        })
    }

    pub(super) fn ban(&self, source: &Source) -> Option<&Ban> {
        self.bans.get(*source, || self.note(self.maps.ban(source)))
    }

    pub(super) fn slot(&self, generation: Generation, source: &Source) -> Option<Slot> {
        let read = || self.note(self.maps.slot(generation, source));
        self.slots.get((generation, *source), read).copied()
    }

    pub(super) fn limit(&self, slot: Slot) -> Option<&Limit> {
        self.limits.get(slot, || self.note(self.maps.limit(slot)))
    }

    pub(super) fn bucket(&self, source: &Source) -> Option<&Bucket> {
        self.buckets.get(*source, || self.note(self.maps.bucket(source)))
    }

    pub(super) fn aggregate(&self, index: u32) -> Option<u64> {
        self.aggregates.get(index, || self.note(self.maps.aggregate(index))).copied()
    }

    pub(super) fn space(&self, lane: Lane) -> Space {
        let read = || self.note(self.maps.space(lane).map(Some));
        self.spaces.get(lane, read).copied().unwrap_or_default()
    }

    pub(super) fn admissions(&self, lane: Lane) -> &[Admission] {
        let read = || self.note(self.maps.admissions(lane).map(Some));
        self.admissions.get(lane, read).map_or(&[], Vec::as_slice)
    }

    /// A table, if all that it asks for is known.
    pub(super) fn table(&self, generation: Generation, index: u32) -> Option<&Table> {
        let known = |table: &&Table| table.fields & !self.known == 0;
        self.any_table(generation, index).filter(known)
    }

    /// A table, whatever it asks for.
    pub(super) fn any_table(&self, generation: Generation, index: u32) -> Option<&Table> {
        let read = || self.note(self.maps.table(generation, index));
        self.tables.get((generation, index), read)
    }

    pub(super) fn shape(&self, generation: Generation, table: u32, shape: u32) -> Option<&Shape> {
        let read = || self.note(self.maps.shape(generation, table, shape));
        self.shapes.get((generation, table, shape), read)
    }

    pub(super) fn table_rule(&self, generation: Generation, key: TableKey) -> TrieValue {
        let read = || self.note(self.maps.table_rule(generation, &key));
        self.rules.get((generation, key), read).copied().unwrap_or_default()
    }

    /// The record in a slot.
    pub fn record(&self, slot: Slot) -> Option<&Record> {
        self.records.get(slot, || self.note(self.maps.record(slot)))
    }

    /// An action.
    pub fn action(&self, index: u32) -> Option<&Action> {
        self.actions.get(index, || self.note(self.maps.action(index)))
    }

    pub(super) fn keyed(&self, key: TableKey) -> Option<&KeyedBucket> {
        self.keyed.get(key, || self.note(self.maps.keyed(&key)))
    }

    pub(super) fn budget(&self, index: u32) -> Option<&KeyedBucket> {
        self.budgets.get(index, || self.note(self.maps.budget(index)))
    }

    pub(super) fn flow(&self, flow: &FlowKey) -> Option<u64> {
        self.flows.get(*flow, || self.note(self.maps.flow(flow))).copied()
    }
}
