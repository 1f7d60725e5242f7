//! Its maps, entry by entry.

use limiter_common::bucket::{Generation, Slot};
use limiter_common::source::Source;
use limiter_common::table::flow::FlowKey;
use limiter_common::wire::{
    Action, Admission, Ban, Bucket, Control, KeyedBucket, LISTS_EXACT, LISTS_PREFIXES, Lane, Limit,
    ListEntry, Moment, Record, Shape, Space, Table, TableKey, TrieValue,
};

use super::Opened;
use crate::datapath::{DatapathError, Reading};
use crate::rules::Selector;
use crate::rules::model::TriePrefix;

type Read<T> = Result<Option<T>, DatapathError>;

/// The value of the longest prefix that has a source.
fn longest<V: Copy>(entries: &[(TriePrefix, V)], source: &Source) -> Option<V> {
    let whole = TriePrefix { length: 128, address: source.trie_key() };
    let around = entries.iter().filter(|(prefix, _)| prefix.contains(&whole));
    around.max_by_key(|(prefix, _)| prefix.length).map(|(_, value)| *value)
}

impl Opened {
    /// The lists, of single sources or of prefixes.
    fn lists(&self, exact: bool) -> Vec<(TriePrefix, ListEntry)> {
        let state = self.fake.state();
        let entries = state.lists.iter().filter(|(selector, _)| selector.is_source() == exact);
        let prefixes = |selector: &Selector| selector.trie_prefixes();
        entries.flat_map(|(of, entry)| prefixes(of).into_iter().map(|at| (at, *entry))).collect()
    }
}

impl Reading for Opened {
    fn moment(&self, _generation: u32) -> Result<Moment, DatapathError> {
        Ok(self.fake.state().moment)
    }

    fn control(&self, word: Control) -> Result<u64, DatapathError> {
        let state = self.fake.state();
        let [even, odd] = &state.rule_sets;
        Ok(match word {
            Control::Generation => state.generation,
            Control::Brake => u64::from(state.brake),
            Control::Lists => LISTS_EXACT | LISTS_PREFIXES,
            Control::EvenRuleSet => even.tables.header.raw(),
            Control::OddRuleSet => odd.tables.header.raw(),
            Control::EvenReplies => even.tables.replies,
            Control::OddReplies => odd.tables.replies,
            Control::EvenBans => even.tables.bans,
            Control::OddBans => odd.tables.bans,
            Control::BansKept => 1,
            Control::TrialEnd => state.trial_end.get(),
            // There is one as long as it asks.
            Control::Abi
            | Control::WallOffset
            | Control::EventCost
            | Control::EventCredit
            | Control::DaemonLost => 0,
        })
    }

    fn listed(&self, source: &Source) -> Read<ListEntry> {
        let whole = TriePrefix::of_source(source.trie_key());
        let found = self.lists(true).into_iter().find(|(prefix, _)| *prefix == whole);
        Ok(found.map(|(_, entry)| entry))
    }

    fn listed_around(&self, source: &Source) -> Read<ListEntry> {
        Ok(longest(&self.lists(false), source))
    }

    fn ban(&self, source: &Source) -> Read<Ban> {
        Ok(self.fake.state().bans.get(&source.trie_key()).copied())
    }

    fn slot(&self, generation: Generation, source: &Source) -> Read<Slot> {
        Ok(longest(&self.fake.state().half(generation).trie, source).map(Slot::new))
    }

    fn limit(&self, slot: Slot) -> Read<Limit> {
        Ok(self.fake.state().limits.get(&slot.index()).copied())
    }

    fn bucket(&self, source: &Source) -> Read<Bucket> {
        Ok(self.fake.state().buckets.get(source).copied())
    }

    fn aggregate(&self, _index: u32) -> Read<u64> {
        Ok(Some(0))
    }

    fn space(&self, _lane: Lane) -> Result<Space, DatapathError> {
        Ok(Space::new(1024, 0))
    }

    fn admissions(&self, lane: Lane) -> Result<Vec<Admission>, DatapathError> {
        Ok(vec![self.fake.state().admission.get(&lane).copied().unwrap_or_default()])
    }

    fn table(&self, generation: Generation, index: u32) -> Read<Table> {
        let state = self.fake.state();
        let table = state.half(generation).tables.tables.get(index as usize);
        Ok(table.map(|(table, _)| *table))
    }

    fn shape(&self, generation: Generation, table: u32, shape: u32) -> Read<Shape> {
        let state = self.fake.state();
        let table = state.half(generation).tables.tables.get(table as usize);
        Ok(table.and_then(|(_, shapes)| shapes.get(shape as usize)).copied())
    }

    fn table_rule(&self, generation: Generation, key: &TableKey) -> Read<TrieValue> {
        let bits = |key: &TableKey| -> Vec<bool> {
            let bytes: [u8; 48] = bytemuck::cast(*key);
            bytes.iter().flat_map(|byte| (0..8).map(move |bit| byte << bit & 0x80 != 0)).collect()
        };
        let (state, wanted) = (self.fake.state(), bits(key));
        let trie = state.half(generation).tables.trie.iter();
        let found = trie.filter(|(prefix, length, _)| {
            let length = *length as usize;
            bits(prefix)[..length] == wanted[..length]
        });
        Ok(found.max_by_key(|(_, length, _)| *length).map(|(_, _, value)| *value))
    }

    fn record(&self, slot: Slot) -> Read<Record> {
        Ok(self.fake.state().records.get(&slot.index()).copied())
    }

    fn action(&self, index: u32) -> Read<Action> {
        Ok(self.fake.state().actions.get(&index).copied())
    }

    fn keyed(&self, key: &TableKey) -> Read<KeyedBucket> {
        Ok(self.fake.state().keyed.get(key).copied())
    }

    fn budget(&self, index: u32) -> Read<KeyedBucket> {
        Ok(self.fake.state().budgets.get(&index).copied())
    }

    fn flow(&self, _flow: &FlowKey) -> Read<u64> {
        Ok(None)
    }
}
