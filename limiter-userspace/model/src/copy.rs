//! Copies of a model that holds only a part of the maps, one for each packet, and the entries that
//! the copies ask for beyond that part.

use std::sync::PoisonError;

use limiter_common::bucket::Generation;
use limiter_common::time::Ticks;
use limiter_common::wire::{Admission, EntryKind, Table};
use limiter_decision::entries::admission;

use super::Model;
use super::reading::Entry;

impl Model {
    pub(super) fn asks(&self, entry: Entry) {
        let Some(part) = self.part.as_ref().filter(|part| !part.read.contains(&entry)) else {
            return;
        };
        let mut missing = part.missing.lock().unwrap_or_else(PoisonError::into_inner);
        if !missing.contains(&entry) {
            missing.push(entry);
        }
    }

    /// Notes that the decision asks for an entry that the model does not hold.
    pub(super) fn missing<T>(&self, entry: Entry) -> Option<T> {
        self.asks(entry);
        None
    }

    /// A table that was left out because it asks for facts that are not known of the packet.
    pub(super) fn left_out(&self, generation: Generation, index: u32) -> Option<Table> {
        let mut left_out = self.part.iter().flat_map(|part| &part.left_out);
        let found = left_out.find(|(of, at, _)| (*of, *at) == (generation, index));
        found.map(|(_, _, table)| *table)
    }

    /// A copy for one packet, which may change it freely.
    pub(super) fn copy(&self, now: Ticks) -> Self {
        let mut copy = Self {
            bypass: self.bypass,
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

    /// Chooses the CPU that will process a packet. The real one is unknown, so this takes the one
    /// that admits most new entries. An entry for the packet is in doubt if CPUs differ, or if a
    /// table that rejected entries is more than half full.
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
            // Prefer an open CPU, with the least demand; among CPUs under pressure, the one that
            // uses least of its budget for returning keys.
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
