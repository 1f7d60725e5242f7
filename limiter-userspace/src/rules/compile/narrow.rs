//! Tables whose keys of IPv4 packets are narrow: `limiter_decision::table`.

use std::collections::BTreeMap;

use limiter_common::bucket::Slot;
use limiter_common::narrow::narrow_number;
use limiter_common::owner::Owner;
use limiter_common::source::MAPPED_BITS;
use limiter_common::wire::{TRIE_FIXED_BITS, Table, TableKey, field};

use super::layout::LayoutTable;
use super::rule_id::{Pattern, RuleId};
use crate::rules::model::TriePrefix;

/// Keys that a name has room for beside the source: they stand in one place.
const PORTS: u32 = field::DESTINATION_PORT | field::ICMP_TYPE;

/// Keys that make one of a table impossible: their values stand elsewhere in a key.
const ELSEWHERE: u32 = field::DESTINATION | field::INNER;

/// Bits of a prefix around all names of a table, and around those of it with a port.
const OF_TABLE: u32 = 80;
const OF_PORT: u32 = 96;

impl TriePrefix {
    /// True if it is of narrow keys: no source has such a key in the trie.
    pub fn is_narrow(&self) -> bool {
        let [before @ .., t, u, _, _, _, _, _, _] = self.address;
        self.length >= OF_TABLE && before == [0; 8] && [t, u] != [0; 2]
    }
}

impl LayoutTable {
    /// Makes a table narrow, if it can be: its rules, as the trie of sources has them for its
    /// narrow keys. `plain` says the slot of a rule that the source table had room for, none of any
    /// other one.
    pub(in crate::rules) fn narrow(
        &self,
        table: &mut Table,
        plain: impl Fn(&RuleId) -> Option<u32>,
    ) -> Vec<(TriePrefix, u32)> {
        match self.narrow_rules(table, plain) {
            Some(rules) => {
                table.narrow = narrow_number(table.id);
                rules.into_iter().collect()
            }
            None => Vec::new(),
        }
    }

    fn narrow_rules(
        &self,
        table: &Table,
        plain: impl Fn(&RuleId) -> Option<u32>,
    ) -> Option<BTreeMap<TriePrefix, u32>> {
        let number = narrow_number(table.id);
        let fields = table.fields;
        let has = |bits| fields & bits != 0;
        // Without a source, packets of both versions have the same keys.
        let fits = has(field::SOURCE) && has(field::V4) && !has(ELSEWHERE) && number != 0;
        let [_, _, port] = TableKey::mask(fields & PORTS);
        let [_, version, _] = TableKey { version: u8::MAX, ..TableKey::EMPTY }.words();
        let words = table.words.iter().zip(table.agreed).zip([0, version, port]);
        let all_agree =
            words.into_iter().all(|((word, agreed), named)| word & !agreed & !named == 0);
        if !fits || !all_agree || self.has_ranges() || self.form.is_of_sources() {
            return None;
        }
        let name = |port: u16, source: u64| {
            let key = TableKey { destination_port: port, ..TableKey::EMPTY };
            let [_, _, port] = key.words();
            Owner::narrow(number | port | source).trie_key()
        };
        let mut rules = BTreeMap::new();
        // The rank of the rule for all ports, and the lowest one of those for some.
        let (mut of_table, mut of_port) = (0, u32::MAX);
        for (pattern, (rank, id)) in self.entries() {
            let slot = match id {
                Some(id) => plain(id)?,
                None => Slot::NONE.index(),
            };
            let Pattern { mask, key, length } = pattern;
            if key.version != 4 {
                continue;
            }
            let source = length.checked_sub(TRIE_FIXED_BITS + MAPPED_BITS)?;
            let [_, _, asked] = mask.words();
            let length = if asked & port == port {
                of_port = of_port.min(*rank);
                OF_PORT + source
            } else if asked & port == 0 && source == 0 {
                of_table = *rank;
                OF_TABLE
            } else {
                return None;
            };
            let [_, low] = key.source;
            // The address alone, without the bytes that make it an IPv6 address.
            let address = name(key.destination_port, low >> 32 << 32);
            if rules.insert(TriePrefix { length, address }, slot).is_some() {
                return None;
            }
        }
        // A rule on all IPv4 sources may come before those on ports.
        if of_table >= of_port {
            return None;
        }
        // So that no rule on IPv6 sources around the names is found.
        let all = TriePrefix { length: OF_TABLE, address: name(0, 0) };
        rules.entry(all).or_insert(Slot::NONE.index());
        Some(rules)
    }
}
