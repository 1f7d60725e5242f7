//! Source rules that need more than the source table.

use std::collections::{BTreeMap, BTreeSet};

use crate::rules::model::{Action, Selector, Terms, TriePrefix};

/// Whether a rule of the source table says more than that table has room for.
pub(super) fn needs_companion(action: &Action) -> bool {
    match action {
        Action::Limit(_) | Action::Shadow(_) | Action::Unlimited => false,
        Action::Terms(terms) => match &**terms {
            Terms::Unlimited => false,
            Terms::Budget(_) => true,
            Terms::Limits(limits) => limits.limits.len() > 1 || limits.in_source_table().is_none(),
        },
    }
}

/// The prefixes of rules with a companion, by length.
#[derive(Debug, Default)]
pub(super) struct Wide(BTreeMap<u32, BTreeSet<TriePrefix>>);

impl Wide {
    pub(super) fn add(&mut self, selector: &Selector) {
        for prefix in selector.trie_prefixes() {
            self.0.entry(prefix.length).or_default().insert(prefix);
        }
    }

    /// Whether a packet of these sources would find one of them.
    pub(super) fn covers(&self, selector: &Selector) -> bool {
        selector.trie_prefixes().iter().any(|prefix| {
            self.0
                .range(..=prefix.length)
                .any(|(length, wide)| wide.contains(&prefix.shortened(*length)))
        })
    }
}
