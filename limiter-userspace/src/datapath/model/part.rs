//! A model that has a part of the maps, and notes what it is asked for beyond that.

use std::sync::{Arc, Mutex, PoisonError};

use limiter_common::bucket::{Generation, Slot};
use limiter_common::owner::Owner;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::wire::{Admission, EntryKind, FlowKey, Table, TableKey};
use limiter_decision::entries::admission;

use super::Model;

/// An entry of the maps that is read when it is asked for; the others are read at the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Moment(u32),
    /// Entries of the source in both lists.
    Listed(Source),
    Ban(Source),
    Slot(Generation, Owner),
    Limit(Slot),
    Bucket(Owner),
    Aggregate(u32),
    Fingerprints(u32),
    /// Table with its shapes.
    Table(Generation, u32),
    TableRule(Generation, TableKey),
    Record(Slot),
    Action(u32),
    Keyed(TableKey),
    Budget(u32),
    Lease(u32),
    Leased(TableKey),
    Flow(FlowKey),
}

/// State of a model that has only a part of the maps.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    /// Entries that were read, whether or not there is one.
    pub(super) read: Vec<Entry>,
    /// Entries that are asked for and were not read, in all copies.
    missing: Arc<Mutex<Vec<Entry>>>,
    /// Tables that ask for more than is known of the packet.
    pub(super) left_out: Vec<(Generation, u32, Table)>,
    /// Capacity and budgets by table: [`EntryKind::index`].
    pub(super) entry_tables: [PartEntryTable; EntryKind::COUNT],
}

/// An entry table, as far as a copy knows it.
#[derive(Clone, Debug, Default)]
pub(super) struct PartEntryTable {
    /// Capacity in entries.
    pub(super) entries: u64,
    /// Budget of new entries by CPU.
    pub(super) cpus: Vec<Admission>,
    /// True if it is not sure that the packet gets an entry.
    doubtful: bool,
}

impl Part {
    /// Takes the entries that are missing.
    pub(super) fn take_missing(&self) -> Vec<Entry> {
        std::mem::take(&mut *self.missing.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Model {
    /// Notes that an entry is asked for.
    pub(super) fn asks(&self, entry: Entry) {
        let Some(part) = self.part.as_ref().filter(|part| !part.read.contains(&entry)) else {
            return;
        };
        let mut missing = part.missing.lock().unwrap_or_else(PoisonError::into_inner);
        if !missing.contains(&entry) {
            missing.push(entry);
        }
    }

    /// Notes that an entry is asked for that the model does not have.
    pub(super) fn missing<T>(&self, entry: Entry) -> Option<T> {
        self.asks(entry);
        None
    }

    /// A table that asks for more than is known of the packet.
    pub(super) fn left_out(&self, generation: Generation, index: u32) -> Option<Table> {
        let mut left_out = self.part.iter().flat_map(|part| &part.left_out);
        let found = left_out.find(|(of, at, _)| (*of, *at) == (generation, index));
        found.map(|(_, _, table)| *table)
    }

    /// A copy for one packet, which may change in it what it likes.
    pub(super) fn copy(&self, now: Ticks) -> Self {
        let mut copy = Self {
            brake: self.brake,
            judged_at: now,
            generation: self.generation,
            trial_end: self.trial_end,
            daemon_lost: self.daemon_lost,
            limits: self.limits.clone(),
            moments: self.moments.clone(),
            tries: self.tries.clone(),
            buckets: self.copied_buckets(),
            lists: self.lists.clone(),
            tables: self.tables.copy(),
            bans: self.bans.copy(),
            entries: self.entries.copy(),
            part: self.part.clone(),
            ..Self::with_room(0, 0, 0)
        };
        for kind in EntryKind::ALL {
            copy.choose_cpu(kind, now);
        }
        copy
    }

    /// Chooses the CPU that will take a packet, which is not known: here one that may make most
    /// entries. If CPUs differ, or a table from which entries were turned away is more than half
    /// full, an entry for the packet is in doubt.
    fn choose_cpu(&mut self, kind: EntryKind, now: Ticks) {
        let Some(mut part) = self.part.take() else {
            return;
        };
        if let Some(table) = part.entry_tables.get_mut(kind.index() as usize) {
            let is_open = |cpu: &&Admission| {
                let entry_table = self.entries.host(kind);
                entry_table.is_some_and(|of| admission::is_open(&of, Ticks::new(cpu.tat), now))
            };
            let open = table.cpus.iter().filter(is_open).count();
            // One that is open has the least demand; of those under pressure, the one that takes
            // least of who comes back.
            let pressure = |cpu: &&Admission| (!is_open(cpu), cpu.returned, cpu.tat);
            let best = table.cpus.iter().min_by_key(pressure);
            let mut sum = Admission::default();
            table.cpus.iter().for_each(|cpu| sum.merge(*cpu));
            let entries = sum.made.saturating_sub(sum.evicted);
            let crowded = sum.full != 0 && entries.saturating_mul(2) >= table.entries;
            table.doubtful = open < table.cpus.len() || crowded;
            self.entries.set_budgets(kind, best.copied().unwrap_or_default());
        }
        self.part = Some(part);
    }

    /// True if the packet of a copy got an entry that is in doubt.
    pub(super) fn doubts(&self) -> bool {
        let doubts = |kind: EntryKind| {
            let table =
                self.part.as_ref().and_then(|part| part.entry_tables.get(kind.index() as usize));
            table.is_some_and(|table| table.doubtful) && self.entries.admission(kind).made != 0
        };
        EntryKind::ALL.into_iter().any(doubts)
    }
}
