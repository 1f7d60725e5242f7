//! Typed handles on the maps of the tables.

use aya::maps::{
    Array, ArrayOfMaps, CpuMap, DevMap, HashMap, LpmTrie, MapData, MapError, lpm_trie::Key,
    xdp::XdpMapError,
};
use limiter_common::bucket::{Generation, Resolved, Slot};
use limiter_common::wire::{
    Action, Ban, KeyName, KeyedBucket, KeyedEntry, MAX_SHAPES, MAX_TABLES, Record, Shape, Table,
    TableKey, TrieValue, WORDS, map,
};
use limiter_rules::TablesPlan;

use super::MapSource;
use super::found::found;
use super::pod::Wire;
use super::tries;
use crate::sources::batch;
use crate::{DatapathError, PinDir};

/// Packets that may queue for a CPU to which they were redirected.
const CPU_QUEUE: u32 = 2048;

type Trie = LpmTrie<MapData, Wire<TableKey>, u64>;

/// Every map of the tables that user space reads or writes.
pub(crate) struct TableMaps {
    pub(crate) tables: Array<MapData, Wire<Table>>,
    pub(crate) shapes: Array<MapData, Wire<Shape>>,
    rules: ArrayOfMaps<MapData, Trie>,
    pub(crate) records: Array<MapData, Wire<Record>>,
    keyed: HashMap<MapData, Wire<KeyName>, Wire<KeyedEntry>>,
    pub(crate) budgets: Array<MapData, Wire<KeyedBucket>>,
    pub(crate) actions: Array<MapData, Wire<Action>>,
    pub(crate) bans: HashMap<MapData, [u8; 16], Wire<Ban>>,
    interfaces: DevMap<MapData>,
    cpus: CpuMap<MapData>,
}

macro_rules! take {
    ($from:expr, $name:expr) => {
        $from($name)?.try_into().map_err(DatapathError::map($name))?
    };
}

impl TableMaps {
    pub(crate) fn take(source: &mut MapSource<'_>) -> Result<Self, DatapathError> {
        Ok(Self {
            tables: take!(source, map::TABLES),
            shapes: take!(source, map::SHAPES),
            rules: take!(source, map::TABLE_RULES),
            records: take!(source, map::RECORDS),
            keyed: take!(source, map::KEYED),
            budgets: take!(source, map::BUDGETS),
            actions: take!(source, map::ACTIONS),
            bans: take!(source, map::BANS),
            interfaces: take!(source, map::INTERFACES),
            cpus: take!(source, map::CPUS),
        })
    }

    /// Fills everything that the rule set of `generation` refers to. None of it is in force yet.
    pub(crate) fn fill(
        &mut self,
        generation: u64,
        plan: &TablesPlan,
        pins: &PinDir,
    ) -> Result<(), DatapathError> {
        // First, because this waits until no packet still reads the previous content of this
        // buffer.
        self.set_trie(generation, &plan.trie, pins)?;
        for index in &plan.begun_budgets {
            // Resolved as of the previous rule set: the first packet points it at its record.
            let before = Generation::new(generation.wrapping_sub(1));
            let resolved = Resolved::new(before, Slot::NONE, Slot::NONE, false).raw();
            let begun = KeyedBucket { resolved, passed: 0, dropped: 0, used: 0, words: [0; WORDS] };
            self.budgets.set(*index, Wire(begun), 0).map_err(DatapathError::map(map::BUDGETS))?;
        }
        self.set_records(&plan.records)?;
        for (index, action) in &plan.actions {
            self.actions.set(*index, Wire(*action), 0).map_err(DatapathError::map(map::ACTIONS))?;
        }
        for (index, interface) in &plan.interfaces {
            self.interfaces.set(*index, *interface, None, 0).map_err(redirect(map::INTERFACES))?;
        }
        for cpu in &plan.cpus {
            self.cpus.set(*cpu, CPU_QUEUE, None, 0).map_err(redirect(map::CPUS))?;
        }
        let first = buffer(generation) * MAX_TABLES;
        for (index, (table, shapes)) in (first..).zip(&plan.tables) {
            self.tables.set(index, Wire(*table), 0).map_err(DatapathError::map(map::TABLES))?;
            for (number, shape) in (index * MAX_SHAPES..).zip(shapes) {
                self.shapes
                    .set(number, Wire(*shape), 0)
                    .map_err(DatapathError::map(map::SHAPES))?;
            }
        }
        Ok(())
    }

    pub(crate) fn set_records(&mut self, records: &[(u32, Record)]) -> Result<(), DatapathError> {
        let slots: Vec<u32> = records.iter().map(|(slot, _)| *slot).collect();
        let records: Vec<_> = records.iter().map(|(_, record)| Wire(*record)).collect();
        let done = batch::update(&self.records, &slots, &records, 1);
        for (slot, record) in slots.iter().zip(&records).skip(done) {
            self.records.set(*slot, record, 0).map_err(DatapathError::map(map::RECORDS))?;
        }
        Ok(())
    }

    fn set_trie(
        &mut self,
        generation: u64,
        entries: &[(TableKey, u32, TrieValue)],
        pins: &PinDir,
    ) -> Result<(), DatapathError> {
        let mut trie: Trie = tries::create(map::TABLE_RULES, entries.len())?;
        let key = |(key, length, _): &(TableKey, u32, TrieValue)| Key::new(*length, Wire(*key));
        let keys: Vec<_> = entries.iter().map(key).collect();
        let values: Vec<_> = entries.iter().map(|(_, _, value)| value.raw()).collect();
        let done = batch::update(&trie, &keys, &values, 1);
        for (key, value) in keys.iter().zip(&values).skip(done) {
            trie.insert(key, value, 0).map_err(DatapathError::map(map::TABLE_RULES))?;
        }
        tries::put(&mut self.rules, trie, map::TABLE_RULES, generation, pins)
    }

    pub(crate) fn trie(
        &self,
        generation: u64,
        pins: &PinDir,
    ) -> Result<Vec<(TableKey, u32, TrieValue)>, DatapathError> {
        let Some(trie) = tries::get(&self.rules, map::TABLE_RULES, generation, pins)? else {
            return Ok(Vec::new());
        };
        trie.iter()
            .map(|entry| {
                let (key, value) = entry.map_err(DatapathError::map(map::TABLE_RULES))?;
                Ok((key.data().0, key.prefix_len(), TrieValue::from_raw(value)))
            })
            .collect()
    }

    /// The first `count` tables of a generation, with their shapes.
    pub(crate) fn tables(
        &self,
        generation: u64,
        count: u32,
    ) -> Result<Vec<(Table, Vec<Shape>)>, DatapathError> {
        let first = buffer(generation) * MAX_TABLES;
        (first..first + count.min(MAX_TABLES))
            .map(|index| {
                let table = self.tables.get(&index, 0).map_err(DatapathError::map(map::TABLES))?.0;
                let numbers = index * MAX_SHAPES..;
                let shapes = numbers
                    .take(table.shapes.min(MAX_SHAPES) as usize)
                    .map(|number| {
                        let shape = self.shapes.get(&number, 0);
                        Ok(shape.map_err(DatapathError::map(map::SHAPES))?.0)
                    })
                    .collect::<Result<_, DatapathError>>()?;
                Ok((table, shapes))
            })
            .collect()
    }

    pub(crate) fn record(&self, slot: u32) -> Result<Record, DatapathError> {
        Ok(self.records.get(&slot, 0).map_err(DatapathError::map(map::RECORDS))?.0)
    }

    pub(crate) fn action(&self, index: u32) -> Result<Action, DatapathError> {
        Ok(self.actions.get(&index, 0).map_err(DatapathError::map(map::ACTIONS))?.0)
    }

    /// The state of a key. `seed` is the seed of the names of
    /// [`limiter_common::wire::EntryKind::Keyed`].
    pub(crate) fn keyed(
        &self,
        key: &TableKey,
        seed: u64,
    ) -> Result<Option<KeyedBucket>, DatapathError> {
        let found = found(map::KEYED, self.keyed.get(&Wire(key.name(|| seed)), 0))?;
        // Another key can have the same name.
        Ok(found.filter(|entry| entry.0.key == *key).map(|entry| entry.0.bucket))
    }

    /// The trie of a generation, for looking up single keys.
    pub(crate) fn rules_of(
        &self,
        generation: Generation,
        pins: &PinDir,
    ) -> Result<Option<Trie>, DatapathError> {
        tries::get(&self.rules, map::TABLE_RULES, u64::from(generation.get()), pins)
    }

    /// Interfaces to which packets are redirected: index into the map, interface index.
    pub(crate) fn interfaces(&self) -> Result<Vec<(u32, u32)>, DatapathError> {
        (0..self.interfaces.len())
            .filter_map(|index| match self.interfaces.get(index, 0) {
                Ok(value) => Some(Ok((index, value.if_index))),
                Err(MapError::KeyNotFound) => None,
                Err(source) => Some(Err(DatapathError::Map { map: map::INTERFACES, source })),
            })
            .collect()
    }

    /// Sources with a ban on record.
    pub(crate) fn bans(&self) -> Result<Vec<([u8; 16], Ban)>, DatapathError> {
        self.bans
            .iter()
            .map(|entry| {
                entry.map(|(source, ban)| (source, ban.0)).map_err(DatapathError::map(map::BANS))
            })
            .collect()
    }

    pub(crate) fn ban(&self, source: &[u8; 16]) -> Result<Option<Ban>, DatapathError> {
        Ok(found(map::BANS, self.bans.get(source, 0))?.map(|ban| ban.0))
    }
}

/// Converts an error of a redirect map.
fn redirect(map: &'static str) -> impl FnOnce(XdpMapError) -> DatapathError {
    move |error| match error {
        XdpMapError::MapError(source) => DatapathError::Map { map, source },
        XdpMapError::ChainedProgramNotSupported => {
            DatapathError::Map { map, source: MapError::InvalidMapType { map_type: 0 } }
        }
    }
}

/// Buffer of a generation: one of two.
fn buffer(generation: u64) -> u32 {
    u32::from(generation % 2 == 1)
}
