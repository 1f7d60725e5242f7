//! Tables whose keys of IPv4 packets are compact: `limiter_decision::table`.

use std::collections::BTreeMap;

use limiter_common::bucket::Slot;
use limiter_common::bucket_key::BucketKey;
use limiter_common::compact::{ADDRESS, compact_number, value_of, value_place, without_room};
use limiter_common::source::MAPPED_BITS;
use limiter_common::wire::{TRIE_FIXED_BITS, Table, TableKey, field};

use super::layout::LayoutTable;
use super::rule_id::{Pattern, RuleId};
use crate::model::TriePrefix;

/// Bits of a prefix around all names of a table, and around those of it with a value of the fact
/// beside the address.
const OF_TABLE: u32 = 80;
const OF_VALUE: u32 = 96;

impl TriePrefix {
    /// True if it is of compact keys: no source has such a key in the trie.
    pub fn is_compact(&self) -> bool {
        let [before @ .., t, u, _, _, _, _, _, _] = self.address;
        self.length >= OF_TABLE && before == [0; 8] && [t, u] != [0; 2]
    }
}

impl LayoutTable {
    /// Makes a table compact, if it can be: its rules, as the trie of sources has them for its
    /// compact keys. `plain` gives the slot of a rule that the source table had room for, `None`
    /// for any other one.
    pub(crate) fn compact(
        &self,
        table: &mut Table,
        plain: impl Fn(&RuleId) -> Option<u32>,
    ) -> Vec<(TriePrefix, u32)> {
        match self.compact_rules(table, plain) {
            Some(rules) => {
                table.compact = compact_number(table.id);
                (_, table.compact_words, table.compact_turn) = value_place(table.fields);
                rules.into_iter().collect()
            }
            None => Vec::new(),
        }
    }

    fn compact_rules(
        &self,
        table: &Table,
        plain: impl Fn(&RuleId) -> Option<u32>,
    ) -> Option<BTreeMap<TriePrefix, u32>> {
        let number = compact_number(table.id);
        let fields = table.fields;
        let has = |bits| fields & bits != 0;
        // Without an address, packets of both versions have the same keys.
        let one_address = has(field::SOURCE) != has(field::DESTINATION);
        let fits = one_address && has(field::V4) && !has(field::INNER) && number != 0;
        let (facts, compact_words, compact_turn) = value_place(fields);
        let named = TableKey::mask(facts);
        let version = TableKey { version: u8::MAX, ..TableKey::EMPTY }.words();
        let words = table.words.iter().zip(table.agreed).zip(named.into_iter().zip(version));
        let all_agree = words
            .into_iter()
            .all(|((word, agreed), (named, version))| word & !agreed & !named & !version == 0);
        if !fits || !all_agree || self.has_ranges() || self.form.is_of_sources() {
            return None;
        }
        let of = Table { compact_words, compact_turn, ..*table };
        let name =
            |value: u64, address: u64| BucketKey::compact(number | value | address).trie_key();
        let mut rules = BTreeMap::new();
        // The rank of the rule for all values, and the lowest one of those for some.
        let (mut of_table, mut of_value) = (0, u32::MAX);
        for (pattern, (rank, id)) in self.entries() {
            let slot = match id {
                Some(id) => plain(id)?,
                None => Slot::NONE.index(),
            };
            let Pattern { mask, key, length } = pattern;
            if key.version != 4 {
                continue;
            }
            let prefix = if has(field::SOURCE) {
                length.checked_sub(TRIE_FIXED_BITS + MAPPED_BITS)?
            } else {
                let ones: u32 = mask.destination.iter().map(|word| word.count_ones()).sum();
                ones.saturating_sub(MAPPED_BITS)
            };
            let words @ [first, ..] = key.words();
            if without_room(&of, first) != 0 {
                // No compact key has this value.
                continue;
            }
            let asked = |wanted: [u64; 3]| {
                mask.words().iter().zip(named).zip(wanted).all(|((a, b), c)| a & b == c)
            };
            let length = if asked(named) {
                of_value = of_value.min(*rank);
                OF_VALUE + prefix
            } else if asked([0; 3]) && prefix == 0 {
                of_table = *rank;
                OF_TABLE
            } else {
                return None;
            };
            let ([_, source], [_, destination]) = (key.source, key.destination);
            // The address alone, without the bytes that make it an IPv6 address.
            let address = name(value_of(&of, words), (source | destination) & ADDRESS);
            if rules.insert(TriePrefix { length, address }, slot).is_some() {
                return None;
            }
        }
        // A rule on all IPv4 addresses may come before those on values.
        if of_table >= of_value {
            return None;
        }
        // So that no rule on IPv6 sources around the names is found.
        let all = TriePrefix { length: OF_TABLE, address: name(0, 0) };
        rules.entry(all).or_insert(Slot::NONE.index());
        Some(rules)
    }
}
