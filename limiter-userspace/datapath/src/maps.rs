//! Typed handles on the program's maps.

pub(crate) mod capture;
pub(crate) mod change_map;
pub(crate) mod entries;
pub(crate) mod events;
pub(crate) mod found;
pub(crate) mod held_rules;
pub(crate) mod leases;
pub(crate) mod lists;
pub(crate) mod open_maps;
pub(crate) mod pod;
pub(crate) mod program_maps;
pub(crate) mod reading;
pub(crate) mod tables;
pub(crate) mod tries;
pub(crate) mod words;

use std::sync::atomic::{Ordering, fence};

use aya::Ebpf;
use aya::maps::lpm_trie::Key;
use aya::maps::{
    Array, ArrayOfMaps, LpmTrie, Map, MapData, MapError, MapInfo, PerCpuArray, PerCpuValues,
};
use limiter_common::bucket::Generation;
use limiter_common::bucket_key::BucketKey;
use limiter_common::header::Direction;
use limiter_common::verdict::Reason;
use limiter_common::wire::{
    Control, InterfaceCounters, Limit, MAX_MEMBERS, Member, RULE_RETIRED, RuleCounters, Tally,
    Uncounted, map,
};
use limiter_rules::model::TriePrefix;

use super::sources::batch;
use super::{DatapathError, PinDir};

use pod::Wire;

/// Counters zeroed per call: 64 bytes each, on every CPU.
const CLEARED_AT_ONCE: usize = 4096;

type Trie = LpmTrie<MapData, [u8; 16], u32>;

/// Every map that user space reads or writes.
pub(super) struct Maps {
    control: Array<MapData, u64>,
    pub(super) limits: Array<MapData, Wire<Limit>>,
    rules: ArrayOfMaps<MapData, Trie>,
    reasons: PerCpuArray<MapData, Wire<Tally>>,
    rule_stats: PerCpuArray<MapData, Wire<RuleCounters>>,
    interface_stats: PerCpuArray<MapData, Wire<InterfaceCounters>>,
    uncounted: PerCpuArray<MapData, Wire<Uncounted>>,
}

macro_rules! take {
    ($from:expr, $name:expr) => {
        $from($name)?.try_into().map_err(DatapathError::map($name))?
    };
}

/// Provides each map once, by its name.
pub(super) type MapSource<'a> = dyn FnMut(&'static str) -> Result<Map, DatapathError> + 'a;

pub(super) fn of_object(ebpf: &mut Ebpf) -> impl FnMut(&'static str) -> Result<Map, DatapathError> {
    |name| {
        let missing = DatapathError::Map { map: name, source: MapError::KeyNotFound };
        ebpf.take_map(name).ok_or(missing)
    }
}

/// Provides the pinned maps, without the object.
pub(super) fn of_pins(pins: &PinDir) -> impl FnMut(&'static str) -> Result<Map, DatapathError> {
    |name| {
        let data = MapData::from_pin(pins.map(name)).map_err(DatapathError::map(name))?;
        Map::from_map_data(data).map_err(DatapathError::map(name))
    }
}

/// The number of entries that a pinned map was made for.
pub(super) fn capacity(pins: &PinDir, map: &'static str) -> Result<u32, DatapathError> {
    let failed = |source: MapError| DatapathError::Map { map, source };
    let info = MapInfo::from_pin(pins.map(map)).map_err(failed)?;
    Ok(info.max_entries())
}

/// The pinned words of `CONTROL`, from any version: the ABI number and the bypass have kept their
/// places since the first version.
pub(super) struct PinnedControl(Array<MapData, u64>);

impl PinnedControl {
    pub(super) fn open(pins: &PinDir) -> Result<Self, DatapathError> {
        let map = of_pins(pins)(map::CONTROL)?;
        map.try_into().map(Self).map_err(DatapathError::map(map::CONTROL))
    }

    pub(super) fn get(&self, word: Control) -> Result<u64, DatapathError> {
        self.0.get(&word.index(), 0).map_err(DatapathError::map(map::CONTROL))
    }

    pub(super) fn set(&mut self, word: Control, value: u64) -> Result<(), DatapathError> {
        self.0.set(word.index(), value, 0).map_err(DatapathError::map(map::CONTROL))
    }
}

impl Maps {
    pub(super) fn take(source: &mut MapSource<'_>) -> Result<Self, DatapathError> {
        Ok(Self {
            control: take!(source, map::CONTROL),
            limits: take!(source, map::LIMITS),
            rules: take!(source, map::RULES),
            reasons: take!(source, map::REASONS),
            rule_stats: take!(source, map::RULE_STATS),
            interface_stats: take!(source, map::INTERFACE_STATS),
            uncounted: take!(source, map::UNCOUNTED),
        })
    }

    pub(super) fn control(&self, word: Control) -> Result<u64, DatapathError> {
        self.control.get(&word.index(), 0).map_err(DatapathError::map(map::CONTROL))
    }

    /// Stores a word after all earlier stores to any map: the program first reads a generation, and
    /// then what it refers to.
    pub(super) fn set_control(&mut self, word: Control, value: u64) -> Result<(), DatapathError> {
        fence(Ordering::Release);
        self.control.set(word.index(), value, 0).map_err(DatapathError::map(map::CONTROL))
    }

    /// Tells the program which interfaces are members of bonds, as many as fit. Clears the places
    /// of members that left.
    pub(super) fn set_members(&mut self, members: &[Member]) -> Result<(), DatapathError> {
        let all = members.iter().copied().chain(std::iter::repeat(Member::default()));
        for (place, member) in (Control::Members.index() + 1..Control::COUNT).zip(all) {
            let set = self.control.set(place, member.raw(), 0);
            set.map_err(DatapathError::map(map::CONTROL))?;
        }
        let count = members.len().min(MAX_MEMBERS as usize);
        self.set_control(Control::Members, count as u64)
    }

    /// The number of rules that fit.
    pub(super) fn capacity(&self) -> u32 {
        self.rule_stats.len()
    }

    pub(super) fn limit(&self, slot: u32) -> Result<Limit, DatapathError> {
        Ok(self.limits.get(&slot, 0).map_err(DatapathError::map(map::LIMITS))?.0)
    }

    /// The trie of a generation, for looking up single sources.
    pub(super) fn rules_of(
        &self,
        generation: Generation,
        pins: &PinDir,
    ) -> Result<Option<Trie>, DatapathError> {
        tries::get(&self.rules, map::RULES, u64::from(generation.get()), pins)
    }

    pub(super) fn set_limits(&mut self, limits: &[(u32, Limit)]) -> Result<(), DatapathError> {
        let slots: Vec<u32> = limits.iter().map(|(slot, _)| *slot).collect();
        let values: Vec<Wire<Limit>> = limits.iter().map(|(_, limit)| Wire(*limit)).collect();
        let done = batch::update(&self.limits, &slots, &values, 1);
        for (slot, limit) in slots.iter().zip(&values).skip(done) {
            self.limits.set(*slot, limit, 0).map_err(DatapathError::map(map::LIMITS))?;
        }
        Ok(())
    }

    /// The trie of a generation.
    pub(super) fn trie(
        &self,
        generation: u64,
        pins: &PinDir,
    ) -> Result<Vec<(TriePrefix, u32)>, DatapathError> {
        let Some(trie) = tries::get(&self.rules, map::RULES, generation, pins)? else {
            return Ok(Vec::new());
        };
        trie.iter()
            .map(|entry| {
                let (key, slot) = entry.map_err(DatapathError::map(map::RULES))?;
                Ok((TriePrefix { length: key.prefix_len(), address: key.data() }, slot))
            })
            .collect()
    }

    /// Replaces the whole trie of a generation.
    pub(super) fn set_trie(
        &mut self,
        generation: u64,
        entries: &[(TriePrefix, u32)],
        pins: &PinDir,
    ) -> Result<(), DatapathError> {
        let mut trie: Trie = tries::create(map::RULES, entries.len())?;
        let key = |prefix: &TriePrefix| Key::new(prefix.length, prefix.address);
        let keys: Vec<_> = entries.iter().map(|(prefix, _)| key(prefix)).collect();
        let slots: Vec<u32> = entries.iter().map(|(_, slot)| *slot).collect();
        let done = batch::update(&trie, &keys, &slots, 1);
        for (key, slot) in keys.iter().zip(&slots).skip(done) {
            trie.insert(key, slot, 0).map_err(DatapathError::map(map::RULES))?;
        }
        tries::put(&mut self.rules, trie, map::RULES, generation, pins)
    }

    pub(super) fn reason(&self, reason: Reason) -> Result<Tally, DatapathError> {
        let values =
            self.reasons.get(&reason.index(), 0).map_err(DatapathError::map(map::REASONS))?;
        let mut sum = Tally::default();
        values.iter().for_each(|value| sum.merge(value.0));
        Ok(sum)
    }

    pub(super) fn interface_counters(
        &self,
        index: u32,
        direction: Direction,
    ) -> Result<InterfaceCounters, DatapathError> {
        let failed = DatapathError::map(map::INTERFACE_STATS);
        let place = InterfaceCounters::place(index, direction);
        let mut sum = InterfaceCounters::default();
        let values = self.interface_stats.get(&place, 0).map_err(failed)?;
        values.iter().for_each(|value| sum.merge(value.0));
        Ok(sum)
    }

    /// Resets the counters of an interface for which no packet is being counted.
    pub(super) fn begin_interface(
        &mut self,
        index: u32,
        direction: Direction,
    ) -> Result<(), DatapathError> {
        let failed = |source| DatapathError::Map { map: map::INTERFACE_STATS, source };
        let place = InterfaceCounters::place(index, direction);
        let cpus = self.interface_stats.get(&place, 0).map_err(failed)?.len();
        let zeros = PerCpuValues::try_from(vec![Wire(InterfaceCounters::default()); cpus]);
        let zeros = zeros.map_err(|source| failed(source.into()))?;
        self.interface_stats.set(place, zeros, 0).map_err(failed)
    }

    /// Drops not yet counted in the buckets of their sources: at most one source per CPU.
    pub(super) fn uncounted(&self) -> Result<Vec<(BucketKey, u64)>, DatapathError> {
        let values = self.uncounted.get(&0, 0).map_err(DatapathError::map(map::UNCOUNTED))?;
        Ok(values.iter().map(|value| value.0.held()).filter(|(_, drops)| *drops > 0).collect())
    }

    pub(super) fn rule_counters(&self, number: u32) -> Result<RuleCounters, DatapathError> {
        let values =
            self.rule_stats.get(&number, 0).map_err(DatapathError::map(map::RULE_STATS))?;
        let mut sum = RuleCounters::default();
        values.iter().for_each(|value| sum.merge(value.0));
        Ok(sum)
    }

    pub(super) fn clear_rule_counters(&mut self, numbers: &[u32]) -> Result<(), DatapathError> {
        let Some(first) = numbers.first() else { return Ok(()) };
        let failed = DatapathError::map(map::RULE_STATS);
        let cpus = self.rule_stats.get(first, 0).map_err(failed)?.len();
        let mut done = 0;
        for numbers in numbers.chunks(CLEARED_AT_ONCE) {
            let zeros = vec![Wire(RuleCounters::default()); numbers.len().saturating_mul(cpus)];
            let cleared = batch::update(&self.rule_stats, numbers, &zeros, cpus);
            done += cleared;
            if cleared < numbers.len() {
                break;
            }
        }
        for number in numbers.iter().skip(done) {
            self.write_rule_counters(*number, RuleCounters::default())?;
        }
        Ok(())
    }

    /// Adds the counts of rules that ended to the total of ended rules. The program never writes to
    /// the total, so no count is lost.
    pub(super) fn retire_rule_counters(&mut self, numbers: &[u32]) -> Result<(), DatapathError> {
        if numbers.is_empty() {
            return Ok(());
        }
        let mut sum = self.rule_counters(RULE_RETIRED)?;
        for number in numbers {
            sum.merge(self.rule_counters(*number)?);
        }
        self.write_rule_counters(RULE_RETIRED, sum)
    }

    fn write_rule_counters(&mut self, number: u32, sum: RuleCounters) -> Result<(), DatapathError> {
        let failed = DatapathError::map(map::RULE_STATS);
        let old = self.rule_stats.get(&number, 0).map_err(failed)?;
        let mut values = vec![Wire(RuleCounters::default()); old.len()];
        if let Some(first) = values.first_mut() {
            first.0 = sum;
        }
        let failed = |source| DatapathError::Map { map: map::RULE_STATS, source };
        let values = PerCpuValues::try_from(values).map_err(|source| failed(source.into()))?;
        self.rule_stats.set(number, values, 0).map_err(failed)
    }
}
