//! What the program would decide about a packet now: the model with the relevant part of the
//! current maps. Changes by the packet stay in a copy, so the question charges nothing.
//!
//! Which part is relevant becomes known only while the packet is judged. So it is judged with what
//! has been read; missing entries that the model asked for are read, and it is judged again, until
//! nothing is missing. Each entry is read once, so that all answers refer to one moment.

use limiter_common::bucket::Generation;
use limiter_common::frame_size::FrameSize;
use limiter_common::header::Direction;
use limiter_common::time::{TICK_BITS, Ticks};
use limiter_common::verdict::Verdict;
use limiter_common::window::WallOffset;
use limiter_common::wire::{
    Control, EntryKind, EntryTable, LISTS_EXACT, LISTS_PREFIXES, MAX_SHAPES, RuleSetHeader,
};
use limiter_decision::maps::Maps as _;
use limiter_decision::outcome::Outcome;
use limiter_decision::packet::{self, Facts, Layer3, Segments, TcFrame};
use limiter_rules::model::TriePrefix;

use super::part::{Part, PartEntryTable};
use super::reading::{Entry, Value};
use super::tables::Buffer;
use super::trail::Trail;
use super::{Looked, Model};
use crate::{Framing, Reading, Way};
use crate::{KEY_BITS, SOURCE_BITS};

/// Capacity of a copy's entry tables: enough for every entry that one packet can create within its
/// look-up budget.
const FRAMES: u32 = 16;

/// The packet in question.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Header at the beginning of the frame.
    pub framing: Framing,
    /// Bytes of the packet, or its first bytes.
    pub frame: &'a [u8],
    /// Size of the whole packet.
    pub size: FrameSize,
    /// Index of the interface by which the packet comes in or goes out.
    pub interface: u32,
    /// Direction of the packet.
    pub direction: Direction,
    /// VLAN tag that is not in the bytes: [`limiter_decision::packet::Bytes::tag`].
    pub tag: Option<u16>,
}

impl<'a> Packet<'a> {
    /// A packet of `length` bytes that comes in by an interface. `frame` may be only its beginning.
    pub const fn received(framing: Framing, frame: &'a [u8], length: u64, interface: u32) -> Self {
        let size = FrameSize::of_packet(length);
        Self { framing, frame, size, interface, direction: Direction::In, tag: None }
    }

    /// A whole packet as tc sees it: a super-frame if it has segments.
    pub fn at_tc(
        framing: Framing,
        frame: &'a [u8],
        direction: Direction,
        segments: Option<Segments>,
        interface: u32,
    ) -> Self {
        let length = u64::try_from(frame.len()).unwrap_or(u64::MAX);
        let packet = Self { direction, ..Self::received(framing, frame, length, interface) };
        let Some(segments) = segments else { return packet };
        let mut facts = Facts::EMPTY;
        let size = match framing {
            Framing::Ethernet => {
                packet::facts(&frame, &mut facts).map(|()| segments.size_of(&frame, &facts, length))
            }
            Framing::Layer3 => packet::facts(&Layer3(frame), &mut facts)
                .map(|()| segments.size_of(&Layer3(frame), &facts, length)),
        };
        // The headers of a frame without facts are unknown.
        let size = size.unwrap_or_else(|_| FrameSize::of_super_frame(length, segments.count, 0));
        Self { size, ..packet }
    }

    /// The packet as the parser reads it: `bytes`, with their framing.
    pub(super) fn bytes<B>(&self, bytes: B) -> TcFrame<B> {
        TcFrame { bytes, is_out: self.direction == Direction::Out, tag: self.tag }
    }
}

/// Outcome of a packet, without any change of the maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Reason why the packet passes or is dropped, and the rule.
    pub outcome: Outcome,
    /// Where the packet goes.
    pub way: Option<Way>,
    /// Steps that the packet reaches.
    pub trail: Trail,
    /// How long the packet waits before it is sent; zero unless a limit holds it back.
    pub waits: Ticks,
}

impl Judged {
    /// True if the packet passes.
    pub fn passes(&self) -> bool {
        matches!(self.outcome.reason.verdict(), Verdict::Pass)
    }
}

impl Model {
    /// Puts in what was read of an entry.
    fn put(&mut self, entry: Entry, value: &Value) {
        match (entry, *value) {
            (Entry::Moment(generation), Value::Moment(moment)) => {
                self.moments.set(generation.into(), moment);
            }
            (Entry::Listed(source), Value::Listed(listed)) => {
                self.lists.insert(TriePrefix::of_source(source.trie_key()), listed);
            }
            (Entry::ListedAround(source), Value::ListedAround(listed)) => {
                // The length of the listed prefix is unknown here, and does not matter.
                let own = TriePrefix::of_source(source.trie_key());
                self.lists.insert(own.shortened(own.length.saturating_sub(1)), listed);
            }
            (Entry::Ban(source), Value::Ban(ban)) => self.put_ban(&source, &ban),
            (Entry::Slot(generation, bucket_key), Value::Slot(slot)) => {
                let prefix = TriePrefix { length: SOURCE_BITS, address: bucket_key.trie_key() };
                let [even, odd] = &mut self.tries;
                let trie = if generation.buffer() == 0 { even } else { odd };
                trie.push((prefix, slot.index()));
            }
            (Entry::Limit(slot), Value::Limit(limit)) => {
                self.limits.insert(slot.index(), limit);
            }
            (Entry::Bucket(bucket_key), Value::Bucket(bucket)) => {
                self.put_bucket(bucket_key, &bucket);
            }
            (Entry::Aggregate(index), Value::Aggregate(word)) => {
                self.entries.aggregate(index).set(word);
            }
            (Entry::Fingerprints(index), Value::Fingerprints(word)) => {
                self.entries.fingerprints(index).set(word);
            }
            (Entry::TableRule(generation, key), Value::TableRule(value)) => {
                self.tables.buffer_mut(generation).trie.push((key, KEY_BITS, value));
            }
            (Entry::Record(slot), Value::Record(record)) => {
                self.tables.write_records([(slot.index(), record)].into());
            }
            (Entry::Action(index), Value::Action(action)) => self.tables.put_action(index, action),
            (Entry::Keyed(key), Value::Keyed(bucket)) => self.tables.put_keyed(key, &bucket),
            (Entry::Budget(index), Value::Budget(bucket)) => {
                self.tables.put_budget(index, &bucket);
            }
            (Entry::Lease(index), Value::Lease(lease)) => self.tables.put_lease(index, &lease),
            (Entry::Leased(key), Value::Leased(leases)) => {
                self.tables.set_leased(&key, Some(leases));
            }
            (Entry::Flow(flow), Value::Flow(time)) => self.set_flow(&flow, Ticks::new(time)),
            // Tables are read with their shapes. No value is of another kind than its entry.
            _ => {}
        }
    }

    /// Judges a packet at `now` in a copy. Returns the outcome and the copy.
    fn judged(&self, packet: &Packet<'_>, now: Ticks) -> (Judged, Self) {
        let mut copy = self.copy(now);
        let outcome = copy.judge_packet(packet, now);
        let waits = copy.waited(now);
        (Judged { outcome, way: copy.way(), trail: copy.trail().clone(), waits }, copy)
    }
}

/// The part of the maps that questions about one packet need.
pub struct Excerpt<'m, E> {
    maps: &'m dyn Reading<Error = E>,
    /// The known facts about the packet, as bits of [`limiter_common::wire::field`].
    known: u32,
    model: Model,
}

impl<'m, E> Excerpt<'m, E> {
    /// An excerpt for a packet whose facts `known` are known, as bits of
    /// [`limiter_common::wire::field`]. Leaves out tables that ask for other facts.
    ///
    /// # Errors
    ///
    /// When the maps cannot be read.
    pub fn new(maps: &'m dyn Reading<Error = E>, known: u32) -> Result<Self, E> {
        let mut model = Model::with_room(FRAMES, FRAMES, 0);
        let mut part = Part::default();
        model.generation = maps.control(Control::Generation)?;
        model.bypass = maps.control(Control::Bypass)? != 0;
        model.trial_end = Ticks::new(maps.control(Control::TrialEnd)?);
        model.daemon_lost = Ticks::new(maps.control(Control::DaemonLost)?);
        model.set_wall_offset(WallOffset::from_raw(maps.control(Control::WallOffset)?));
        let buffer = |header, replies, bans| {
            Ok::<_, E>(Buffer {
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
        for (kind, copied) in EntryKind::ALL.into_iter().zip(&mut part.entry_tables) {
            let (entry_table, cpus) = maps.admissions(kind)?;
            *copied = PartEntryTable { entries: entry_table.entries, cpus, doubtful: false };
            let entries = u64::from(FRAMES);
            model.entries.set_entry_table(kind, EntryTable { entries, cursor: 0, ..entry_table });
        }
        model.part = Some(part);
        Ok(Self { maps, known, model })
    }

    /// The outcome that the program would give a packet at `now`, or later if no other packet
    /// comes.
    ///
    /// # Errors
    ///
    /// When the maps cannot be read.
    pub fn judge(&mut self, packet: &Packet<'_>, now: Ticks) -> Result<Judged, E> {
        self.answer(|model| model.judged(packet, now).0)
    }

    /// How long after `now` such a packet passes, if no other comes; `None` for never.
    ///
    /// # Errors
    ///
    /// When the maps cannot be read.
    pub fn wait(&mut self, packet: &Packet<'_>, now: Ticks) -> Result<Option<Ticks>, E> {
        self.answer(|model| wait_until(now, |at| model.judged(packet, at).0.passes()))
    }

    /// The rules that apply to a packet at `now`, and how full their buckets are.
    ///
    /// # Errors
    ///
    /// When the maps cannot be read.
    pub fn look(&mut self, packet: &Packet<'_>, now: Ticks) -> Result<Looked, E> {
        self.answer(|model| {
            // The source table, too, may have no space for a new entry.
            let doubtful = model.judged(packet, now).1.doubts();
            let looked = model.copy(now).look(packet, now);
            Looked { doubtful: looked.doubtful || doubtful, ..looked }
        })
    }

    /// Asks, reads what the answer lacks, and asks again, until nothing is missing.
    fn answer<T>(&mut self, question: impl Fn(&Model) -> T) -> Result<T, E> {
        loop {
            let answer = question(&self.model);
            let missing = self.model.part.as_ref().map(Part::take_missing).unwrap_or_default();
            if missing.is_empty() {
                return Ok(answer);
            }
            for entry in missing {
                self.read(entry)?;
            }
        }
    }

    /// Reads an entry into the model.
    fn read(&mut self, entry: Entry) -> Result<(), E> {
        match entry {
            Entry::Listed(source) => {
                let lists = self.maps.control(Control::Lists)?;
                if lists & LISTS_EXACT != 0 {
                    self.copy(entry)?;
                }
                if lists & LISTS_PREFIXES != 0 {
                    self.copy(Entry::ListedAround(source))?;
                }
            }
            Entry::Table(generation, index) => self.read_table(generation, index)?,
            _ => self.copy(entry)?,
        }
        if let Some(part) = &mut self.model.part {
            part.read.push(entry);
        }
        Ok(())
    }

    fn copy(&mut self, entry: Entry) -> Result<(), E> {
        if let Some(value) = self.maps.read(entry)? {
            self.model.put(entry, &value);
        }
        Ok(())
    }

    /// Reads a table and its shapes, if all facts that it asks for are known of the packet.
    fn read_table(&mut self, generation: Generation, index: u32) -> Result<(), E> {
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
            .collect::<Result<_, E>>()?;
        self.model.tables.buffer_mut(generation).tables.insert(index, (table, shapes));
        Ok(())
    }
}

/// How long after `now` something first holds, provided that it then holds forever; `None` for
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

#[cfg(test)]
mod tests {
    use limiter_rules::{Environment, RuleFile};

    use super::*;

    const RULES: &[u8] = b"descriptors:
  - {key: remote_address, rate_limit: {unit: minute, requests_per_unit: 6, burst: 3}}
  - {key: destination_port, value: 53, budget: dns}
  - {key: protocol, rate_limit: {unit: minute, requests_per_unit: 4, algorithm: sliding_log}}
budgets: [{name: dns, rate_limit: {unit: minute, requests_per_unit: 2, burst: 2}}]
";

    /// A datagram from 192.0.2.1 to port 53.
    fn frame() -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend([192, 0, 2, 1, 198, 51, 100, 1, 0, 9, 0, 53, 0, 26, 0, 0]);
        frame.resize(60, 0);
        frame
    }

    #[test]
    fn a_packet_is_reported_before_it_comes_and_every_entry_is_read_once() {
        let file = RuleFile::parse("r.yaml", RULES, 1522).unwrap();
        let machine = Environment {
            max_frame: 1522,
            interface_index: &|_| None,
            cpus: 1,
            cluster: None,
            in_at_tc: Some(false),
        };
        let mut model = Model::with_room(64, 64, 0);
        let plan = model.installed().plan(&file.rules, 1, 1024, &machine).unwrap();
        let frame = frame();
        let length = u64::try_from(frame.len()).unwrap();
        let mut now = Ticks::from_nanos(1_000_000_000);
        model.commit(plan, now);
        let packet = Packet::received(Framing::Ethernet, &frame, length, 1);
        let mut dropped = 0;
        for _ in 0..12 {
            let mut excerpt = Excerpt::new(&model, u32::MAX).unwrap();
            let looked = excerpt.look(&packet, now).unwrap();
            let judged = excerpt.judge(&packet, now).unwrap();
            let wait = excerpt.wait(&packet, now).unwrap().unwrap();
            assert_eq!(excerpt.judge(&packet, now).unwrap(), judged, "a question charged it");
            assert_eq!(looked.tables.len(), 2);
            let read = &excerpt.model.part.as_ref().unwrap().read;
            assert!(read.len() > 10);
            for (index, entry) in read.iter().enumerate() {
                assert!(!read[..index].contains(entry), "{entry:?} is read twice");
            }
            assert_eq!(wait == Ticks::ZERO, judged.passes());
            if wait != Ticks::ZERO {
                dropped += 1;
                let early = now.plus(wait).since(Ticks::new(1));
                assert!(!excerpt.judge(&packet, early).unwrap().passes());
                assert!(excerpt.judge(&packet, now.plus(wait)).unwrap().passes());
            }
            let outcome = model.judge_packet(&packet, now);
            assert_eq!((judged.outcome, &judged.trail), (outcome, model.trail()));
            now = now.plus(if dropped % 2 == 1 { wait } else { Ticks::new(1) });
        }
        assert!(dropped > 2, "{dropped}");
    }
}
