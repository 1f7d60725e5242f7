//! The rules in force by number, to share the counts of a bucket out among them.

use std::cell::RefCell;
use std::collections::BTreeMap;

use limiter_datapath::Observed;

use super::counters::Counters;
use crate::rule_sets::effective::EffectiveSet;
use crate::views::{self, Title};

/// The rules in force: their titles, and their own counters.
///
/// A bucket keeps its counts when the rules change, and names only the rule that charged it last.
/// That rule has no more of them than it counted itself.
pub(crate) struct Rules<'a> {
    titles: BTreeMap<u32, Title>,
    /// True if other rules were in force before.
    changed: bool,
    read: Box<dyn Fn(u32) -> Option<Counters> + 'a>,
    /// Counters that were read already.
    known: RefCell<BTreeMap<u32, Option<Counters>>>,
}

impl<'a> Rules<'a> {
    pub(crate) fn of(datapath: &'a dyn Observed, effective: &EffectiveSet) -> Self {
        let changed = datapath.generation() > 1;
        let read = move |number| {
            let counters = datapath.rule_counters(number).ok()?;
            let (passed, dropped) = (counters.passed.packets, counters.dropped.packets);
            Some(Counters { passed, dropped })
        };
        Self::new(views::rule_names(datapath, effective), changed, read)
    }

    pub(super) fn new(
        titles: BTreeMap<u32, Title>,
        changed: bool,
        read: impl Fn(u32) -> Option<Counters> + 'a,
    ) -> Self {
        Self { titles, changed, read: Box::new(read), known: RefCell::default() }
    }

    pub(super) fn title(&self, number: u32) -> Option<&Title> {
        self.titles.get(&number)
    }

    /// True if buckets of a rule may have counts of rules before that nothing tells apart. All that
    /// the rule of one source counted is of that source.
    pub(super) const fn mixes(&self, title: &Title) -> bool {
        self.changed && !title.of_one
    }

    /// What a rule counted itself, of all sources; `None` if that is not known, or if no other rule
    /// was ever in force.
    pub(super) fn counted(&self, number: u32) -> Option<Counters> {
        let mut known = self.known.borrow_mut();
        *known.entry(number).or_insert_with(|| (self.read)(number).filter(|_| self.changed))
    }
}
