//! Slots that one rule set has in force and another one does not.

use limiter_common::wire::{Limit, Record};

use super::free::Flags;
use super::installed::Installed;

/// Limits and records, each with its slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// Limits of the source table, each with its slot.
    pub limits: Vec<(u32, Limit)>,
    /// Records of the other tables, each with its slot.
    pub records: Vec<(u32, Record)>,
}

impl Installed {
    /// Slots in force under `self` and not under `other`.
    pub fn not_in(&self, other: &Self) -> Slots {
        let kept: Flags = other.rules.values().map(|rule| rule.slot).collect();
        let rules = self.rules.values().filter(|rule| !kept.contains(rule.slot));
        let kept = &other.tables.records;
        let records = self.tables.records.iter().filter(|(slot, _)| !kept.contains_key(slot));
        Slots {
            limits: rules.map(|rule| (rule.slot, rule.limit)).collect(),
            records: records.map(|(slot, record)| (*slot, *record)).collect(),
        }
        .with_compact()
    }

    /// Slots in force that are marked as ended: a trial that ended them was taken back while there
    /// was no daemon. `self` marks them no longer.
    pub fn take_back_in_force(&mut self) -> Slots {
        let mut slots = Slots::default();
        for rule in self.rules.values_mut().filter(|rule| rule.limit.ended != 0) {
            rule.limit.ended = 0;
            slots.limits.push((rule.slot, rule.limit));
        }
        for (slot, record) in self.tables.records.iter_mut().filter(|(_, it)| it.ended != 0) {
            record.ended = 0;
            slots.records.push((*slot, *record));
        }
        slots.with_compact()
    }
}

/// The limits that records have for compact keys, with their slots.
pub(super) fn limits_of(records: &[(u32, Record)]) -> impl Iterator<Item = (u32, Limit)> + '_ {
    let compact = records.iter().filter(|(_, record)| record.is_compact());
    compact.map(|(slot, record)| (*slot, record.limit()))
}

impl Slots {
    /// Adds the limits that the records have for compact keys.
    fn with_compact(mut self) -> Self {
        self.limits.extend(limits_of(&self.records));
        self
    }

    /// These slots, as left in a generation: [`limiter_common::wire::ended_in`]; 0 for in
    /// force.
    #[must_use]
    pub fn ended(mut self, ended: u16) -> Self {
        self.limits.iter_mut().for_each(|(_, limit)| limit.ended = ended);
        self.records.iter_mut().for_each(|(_, record)| record.ended = ended);
        self
    }
}
