//! What the program would do with a packet now: the model, with what the packet touches of the maps
//! as they are. What the packet would change stays in a copy, so nothing is charged for the
//! question.
//!
//! What a packet touches is known when it is judged. So it is judged by what was read so far; what
//! the model was asked and has not is read, and it is judged again, until nothing is missing. Each
//! entry is read once, so that all answers are of one moment.

use std::sync::{Arc, Mutex, PoisonError};

use limiter_common::algorithm::window::WallOffset;
use limiter_common::bucket::{Generation, Slot};
use limiter_common::outcome::Outcome;
use limiter_common::room::admission;
use limiter_common::source::Source;
use limiter_common::table::flow::FlowKey;
use limiter_common::time::{TICK_BITS, Ticks};
use limiter_common::verdict::Verdict;
use limiter_common::wire::{
    Admission, Control, LISTS_EXACT, LISTS_PREFIXES, Lane, MAX_SHAPES, RuleSetHeader, Space, Table,
    TableKey,
};
use limiter_common::world::Tables as _;

use super::tables::Buffer;
use super::trail::Trail;
use super::{Looked, Model};
use crate::datapath::reading::{KEY_BITS, SOURCE_BITS};
use crate::datapath::{DatapathError, Framing, Reading, Way};
use crate::rules::model::TriePrefix;

/// Room for entries in a copy: for all that one packet makes, with as many looks as it has for one.
const FRAMES: u32 = 16;

/// The packet that is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// With what it begins.
    pub framing: Framing,
    /// Its bytes, or the beginning of them.
    pub frame: &'a [u8],
    /// How many it has.
    pub length: u64,
    /// The index of the interface that it comes in by.
    pub interface: u32,
}

/// What would become of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Why it passes or is dropped, and by which rule.
    pub outcome: Outcome,
    /// Where it goes.
    pub way: Option<Way>,
    /// The steps that it comes to.
    pub trail: Trail,
}

impl Judged {
    /// Whether it passes.
    pub fn passes(&self) -> bool {
        matches!(self.outcome.reason.verdict(), Verdict::Pass)
    }
}

/// An entry of the maps that is read when it is asked for; the others are read at the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Moment(u32),
    /// Both of the lists.
    Listed(Source),
    Ban(Source),
    Slot(Generation, Source),
    Limit(Slot),
    Bucket(Source),
    Aggregate(u32),
    /// With its shapes.
    Table(Generation, u32),
    TableRule(Generation, TableKey),
    Record(Slot),
    Action(u32),
    Keyed(TableKey),
    Budget(u32),
    Flow(FlowKey),
}

/// What a model knows that has a part of the maps.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    /// Entries that were read, whether or not there is one.
    read: Vec<Entry>,
    /// Entries that are asked for and were not read, in all copies.
    missing: Arc<Mutex<Vec<Entry>>>,
    /// Tables that ask for more than is known of the packet.
    left_out: Vec<(Generation, u32, Table)>,
    /// The tables of entries.
    room: [Room; Lane::COUNT],
}

/// How much room there is for new entries.
#[derive(Clone, Debug, Default)]
struct Room {
    /// Entries that there is room for.
    entries: u64,
    /// Each CPU's budget of new ones.
    cpus: Vec<Admission>,
    /// Whether it is not sure that the packet gets an entry.
    doubtful: bool,
}

impl Model {
    /// Notes that an entry is asked for.
    pub(super) fn asks(&self, entry: Entry) {
        let Some(part) = self.part.as_ref().filter(|part| !part.read.contains(&entry)) else {
            return;
        };
        let mut missing = part.missing.lock().unwrap_or_else(PoisonError::into_inner);
        if !missing.contains(&entry) {
            missing.push(entry);
        }
    }

    /// Notes that an entry is asked for that the model does not have.
    pub(super) fn missing<T>(&self, entry: Entry) -> Option<T> {
        self.asks(entry);
        None
    }

    /// A table that asks for more than is known of the packet.
    pub(super) fn left_out(&self, generation: Generation, index: u32) -> Option<Table> {
        let mut left_out = self.part.iter().flat_map(|part| &part.left_out);
        let found = left_out.find(|(of, at, _)| (*of, *at) == (generation, index));
        found.map(|(_, _, table)| *table)
    }

    /// The same part of the maps for one packet, which may change in it what it likes.
    pub(super) fn copy(&self, now: Ticks) -> Self {
        let mut copy = Self {
            brake: self.brake,
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
            room: self.room.copy(),
            part: self.part.clone(),
            ..Self::with_room(0, 0, 0)
        };
        for lane in Lane::ALL {
            copy.choose_cpu(lane, now);
        }
        copy
    }

    /// Which CPU will take a packet is not known: here it is one that may make most entries. Where
    /// they differ, or a table from which entries were turned away is more than half full, it is
    /// not sure that the packet gets one.
    fn choose_cpu(&mut self, lane: Lane, now: Ticks) {
        let Some(mut part) = self.part.take() else {
            return;
        };
        if let Some(room) = part.room.get_mut(lane.index() as usize) {
            let admits = |cpu: &&Admission| {
                self.room.set_budget(lane, cpu.tat);
                admission::admit(self, lane, now)
            };
            let admitting: Vec<_> = room.cpus.iter().filter(admits).collect();
            let best = admitting.iter().map(|cpu| cpu.tat).min();
            let mut sum = Admission::default();
            room.cpus.iter().for_each(|cpu| sum.merge(*cpu));
            let entries = sum.made.saturating_sub(sum.evicted);
            let crowded = sum.full != 0 && entries.saturating_mul(2) >= room.entries;
            room.doubtful = admitting.len() < room.cpus.len() || crowded;
            let none = || room.cpus.first().map_or(0, |cpu| cpu.tat);
            self.room.set_budget(lane, best.unwrap_or_else(none));
        }
        self.part = Some(part);
    }

    /// Whether the packet of a copy got an entry in it of which that is not sure.
    pub(super) fn doubts(&self) -> bool {
        let doubts = |lane: Lane| {
            let room = self.part.as_ref().and_then(|part| part.room.get(lane.index() as usize));
            room.is_some_and(|room| room.doubtful) && self.room.admission(lane).made != 0
        };
        Lane::ALL.into_iter().any(doubts)
    }

    /// What becomes of a packet at `now`, in a copy.
    fn judged(&self, packet: &Packet<'_>, now: Ticks) -> (Judged, Self) {
        let mut copy = self.copy(now);
        let Packet { framing, frame, length, interface } = *packet;
        let outcome = copy.judge_captured(framing, frame, length, interface, now);
        (Judged { outcome, way: copy.way(), trail: copy.trail().clone() }, copy)
    }
}

/// What questions about one packet touch of the maps.
pub struct Excerpt<'m> {
    maps: &'m dyn Reading,
    /// Bits of [`limiter_common::wire::field`] that are known of the packet.
    known: u32,
    model: Model,
}

impl<'m> Excerpt<'m> {
    /// One for a packet of which the facts `known` are known, bits of
    /// [`limiter_common::wire::field`]. Tables that ask for others are left out.
    ///
    /// # Errors
    ///
    /// When the maps cannot be read.
    pub fn new(maps: &'m dyn Reading, known: u32) -> Result<Self, DatapathError> {
        let mut model = Model::with_room(FRAMES, FRAMES, 0);
        let mut part = Part::default();
        model.generation = maps.control(Control::Generation)?;
        model.brake = maps.control(Control::Brake)? != 0;
        model.trial_end = Ticks::new(maps.control(Control::TrialEnd)?);
        model.daemon_lost = Ticks::new(maps.control(Control::DaemonLost)?);
        model.set_wall_offset(WallOffset::from_raw(maps.control(Control::WallOffset)?));
        let buffer = |header, replies, bans| {
            Ok::<_, DatapathError>(Buffer {
                header: RuleSetHeader::from_raw(maps.control(header)?),
                replies: maps.control(replies)?,
                bans: maps.control(bans)?,
                ..Buffer::default()
            })
        };
        model.tables.buffers = [
            buffer(Control::EvenRuleSet, Control::EvenReplies, Control::EvenBans)?,
            buffer(Control::OddRuleSet, Control::OddReplies, Control::OddBans)?,
        ];
        for (lane, room) in Lane::ALL.into_iter().zip(&mut part.room) {
            let space = maps.space(lane)?;
            *room = Room { entries: space.entries, cpus: maps.admissions(lane)?, doubtful: false };
            let frames = u64::from(FRAMES);
            model.room.set_space(lane, Space { entries: frames, hand: 0, ..space });
        }
        model.part = Some(part);
        Ok(Self { maps, known, model })
    }

    /// What the program would do with a packet at `now`, or later if no other came.
    ///
    /// # Errors
    ///
    /// When the maps cannot be read.
    pub fn judge(&mut self, packet: &Packet<'_>, now: Ticks) -> Result<Judged, DatapathError> {
        self.answer(|model| model.judged(packet, now).0)
    }

    /// How long after `now` such a packet passes, if no other comes; none for never.
    ///
    /// # Errors
    ///
    /// When the maps cannot be read.
    pub fn wait(
        &mut self,
        packet: &Packet<'_>,
        now: Ticks,
    ) -> Result<Option<Ticks>, DatapathError> {
        self.answer(|model| wait_until(now, |at| model.judged(packet, at).0.passes()))
    }

    /// The rules that a packet falls under at `now`, and how full their buckets are.
    ///
    /// # Errors
    ///
    /// When the maps cannot be read.
    pub fn look(&mut self, packet: &Packet<'_>, now: Ticks) -> Result<Looked, DatapathError> {
        self.answer(|model| {
            // Whether there is room is asked in the source table, too.
            let doubtful = model.judged(packet, now).1.doubts();
            let looked = model.copy(now).look(packet, now);
            Looked { doubtful: looked.doubtful || doubtful, ..looked }
        })
    }

    /// Asks, reads what the answer misses, and asks again, until it misses nothing.
    fn answer<T>(&mut self, question: impl Fn(&Model) -> T) -> Result<T, DatapathError> {
        loop {
            let answer = question(&self.model);
            let missing = self.model.part.as_ref().map(|part| Arc::clone(&part.missing));
            let missing = missing.unwrap_or_default();
            let missing =
                std::mem::take(&mut *missing.lock().unwrap_or_else(PoisonError::into_inner));
            if missing.is_empty() {
                return Ok(answer);
            }
            for entry in missing {
                self.read(entry)?;
            }
        }
    }

    /// Reads an entry into the model.
    fn read(&mut self, entry: Entry) -> Result<(), DatapathError> {
        let Self { maps, model, .. } = self;
        match entry {
            Entry::Moment(generation) => {
                model.moments.set(generation.into(), maps.moment(generation)?);
            }
            Entry::Listed(source) => {
                let lists = maps.control(Control::Lists)?;
                let own = TriePrefix::of_source(source.trie_key());
                // The length of the prefix around it tells nothing here.
                let around = own.shortened(own.length.saturating_sub(1));
                if lists & LISTS_EXACT != 0 {
                    model.lists.extend(maps.listed(&source)?.map(|entry| (own, entry)));
                }
                if lists & LISTS_PREFIXES != 0 {
                    model.lists.extend(maps.listed_around(&source)?.map(|entry| (around, entry)));
                }
            }
            Entry::Ban(source) => {
                if let Some(ban) = maps.ban(&source)? {
                    model.bans.put(source.trie_key(), &ban);
                }
            }
            Entry::Slot(generation, source) => {
                let slot = maps.slot(generation, &source)?;
                let prefix = TriePrefix { length: SOURCE_BITS, address: source.trie_key() };
                let [even, odd] = &mut model.tries;
                let trie = if generation.buffer() == 0 { even } else { odd };
                trie.extend(slot.map(|slot| (prefix, slot.index())));
            }
            Entry::Limit(slot) => {
                model.limits.extend(maps.limit(slot)?.map(|limit| (slot.index(), limit)));
            }
            Entry::Bucket(source) => {
                if let Some(bucket) = maps.bucket(&source)? {
                    model.put_bucket(source, &bucket);
                }
            }
            Entry::Aggregate(index) => {
                if let Some(word) = maps.aggregate(index)? {
                    model.room.aggregate(index).set(word);
                }
            }
            Entry::Table(generation, index) => self.read_table(generation, index)?,
            Entry::TableRule(generation, key) => {
                let value = maps.table_rule(generation, &key)?;
                let trie = &mut model.tables.buffer_mut(generation).trie;
                trie.extend(value.map(|value| (key, KEY_BITS, value)));
            }
            Entry::Record(slot) => {
                let record = maps.record(slot)?.map(|record| (slot.index(), record));
                model.tables.write_records(record.into_iter().collect());
            }
            Entry::Action(index) => {
                if let Some(action) = maps.action(index)? {
                    model.tables.put_action(index, action);
                }
            }
            Entry::Keyed(key) => {
                if let Some(bucket) = maps.keyed(&key)? {
                    model.tables.put_keyed(key, &bucket);
                }
            }
            Entry::Budget(index) => {
                if let Some(bucket) = maps.budget(index)? {
                    model.tables.put_budget(index, &bucket);
                }
            }
            Entry::Flow(flow) => {
                if let Some(time) = maps.flow(&flow)? {
                    model.set_flow(&flow, Ticks::new(time));
                }
            }
        }
        if let Some(part) = &mut self.model.part {
            part.read.push(entry);
        }
        Ok(())
    }

    /// Reads a table and its shapes, if all that it asks for is known of the packet.
    fn read_table(&mut self, generation: Generation, index: u32) -> Result<(), DatapathError> {
        let Some(table) = self.maps.table(generation, index)? else {
            return Ok(());
        };
        if table.fields & !self.known != 0 {
            if let Some(part) = &mut self.model.part {
                part.left_out.push((generation, index, table));
            }
            return Ok(());
        }
        let shapes = (0..table.shapes.min(MAX_SHAPES))
            .map(|shape| Ok(self.maps.shape(generation, index, shape)?.unwrap_or_default()))
            .collect::<Result<_, DatapathError>>()?;
        self.model.tables.buffer_mut(generation).tables.insert(index, (table, shapes));
        Ok(())
    }
}

/// How long after `now` something holds for the first time, if once it does it goes on; `None` for
/// never.
pub(super) fn wait_until(now: Ticks, holds: impl Fn(Ticks) -> bool) -> Option<Ticks> {
    if holds(now) {
        return Some(Ticks::ZERO);
    }
    let (mut early, mut late) = (0, 1u64 << TICK_BITS);
    loop {
        let at = now.plus(Ticks::new(late));
        if at.is_past_range() {
            return None;
        }
        if holds(at) {
            break;
        }
        early = late;
        late = late.saturating_mul(2);
    }
    while late - early > 1 {
        let middle = early + (late - early) / 2;
        if holds(now.plus(Ticks::new(middle))) { late = middle } else { early = middle }
    }
    Some(Ticks::new(late))
}
