//! The model as others read the kernel's maps.

use limiter_common::bucket::{Generation, Slot};
use limiter_common::cell::Cell as _;
use limiter_common::change::Changes;
use limiter_common::source::Source;
use limiter_common::table::flow::FlowKey;
use limiter_common::time::Ticks;
use limiter_common::wire::{
    Action, Admission, Ban, Bucket, Control, KeyedBucket, LISTS_EXACT, LISTS_PREFIXES, Lane, Limit,
    ListEntry, MAX_BUDGETS, Moment, OwnBudget, Record, Shape, Space, Table, TableKey, TrieValue,
    WORDS,
};
use limiter_common::world::Maps as _;
use limiter_common::world::Tables;

use super::Model;
use crate::datapath::{DatapathError, Reading};
use crate::rules::model::TriePrefix;

type Read<T> = Result<Option<T>, DatapathError>;

impl Reading for Model {
    fn moment(&self, generation: u32) -> Result<Moment, DatapathError> {
        Ok(Changes::moment(self, generation))
    }

    fn control(&self, word: Control) -> Result<u64, DatapathError> {
        let header = |number| self.tables.header(Generation::new(number)).raw();
        let own = |number, budget| self.tables.own_budget(Generation::new(number), budget);
        Ok(match word {
            Control::Generation => self.generation,
            Control::Brake => u64::from(self.brake),
            Control::Lists => LISTS_EXACT | LISTS_PREFIXES,
            Control::EvenRuleSet => header(0),
            Control::OddRuleSet => header(1),
            Control::WallOffset => self.tables.offset.nanos(),
            Control::EvenReplies => own(0, OwnBudget::Replies),
            Control::OddReplies => own(1, OwnBudget::Replies),
            Control::EvenBans => own(0, OwnBudget::Bans),
            Control::OddBans => own(1, OwnBudget::Bans),
            Control::BansKept => 1,
            Control::TrialEnd => self.trial_end.get(),
            Control::DaemonLost => self.daemon_lost.get(),
            Control::Abi | Control::EventCost | Control::EventCredit => 0,
        })
    }

    fn listed(&self, source: &Source) -> Read<ListEntry> {
        Ok(self.lists.get(&TriePrefix::of_source(source.trie_key())).copied())
    }

    fn listed_around(&self, source: &Source) -> Read<ListEntry> {
        Ok(self.listed_prefix(source).copied())
    }

    fn ban(&self, source: &Source) -> Read<Ban> {
        let bans = self.bans();
        Ok(bans.into_iter().find(|(of, _)| *of == source.trie_key()).map(|(_, ban)| ban))
    }

    fn slot(&self, generation: Generation, source: &Source) -> Read<Slot> {
        Ok(self.resolve(generation, source))
    }

    fn limit(&self, slot: Slot) -> Read<Limit> {
        Ok(self.limits.get(&slot.index()).copied())
    }

    fn bucket(&self, source: &Source) -> Read<Bucket> {
        Ok(Self::bucket(self, source))
    }

    fn aggregate(&self, index: u32) -> Read<u64> {
        Ok(Some(self.room.aggregate(index).load()))
    }

    fn space(&self, lane: Lane) -> Result<Space, DatapathError> {
        Ok(self.room.space(lane))
    }

    fn admissions(&self, lane: Lane) -> Result<Vec<Admission>, DatapathError> {
        Ok(vec![self.room.admission(lane)])
    }

    fn table(&self, generation: Generation, index: u32) -> Read<Table> {
        Ok(Tables::table(self, generation, index).copied())
    }

    fn shape(&self, generation: Generation, table: u32, shape: u32) -> Read<Shape> {
        Ok(Tables::shape(self, generation, table, shape).copied())
    }

    fn table_rule(&self, generation: Generation, key: &TableKey) -> Read<TrieValue> {
        let key = std::cell::Cell::new(*key);
        Ok(Some(Tables::table_rule(self, generation, &key)))
    }

    fn record(&self, slot: Slot) -> Read<Record> {
        Ok(Tables::record(self, slot).copied())
    }

    fn action(&self, index: u32) -> Read<Action> {
        Ok(Tables::action(self, index).copied())
    }

    fn keyed(&self, key: &TableKey) -> Read<KeyedBucket> {
        Ok(Self::keyed(self, key))
    }

    fn budget(&self, index: u32) -> Read<KeyedBucket> {
        if index < MAX_BUDGETS {
            return Ok(Self::budget(self, index));
        }
        let empty = KeyedBucket { resolved: 0, passed: 0, dropped: 0, used: 0, words: [0; WORDS] };
        Ok(Some(self.tables.shared(index).unwrap_or(empty)))
    }

    fn flow(&self, flow: &FlowKey) -> Read<u64> {
        Ok(Tables::flow(self, flow).map(Ticks::get))
    }
}
