//! The rules that apply to a packet, and how full their buckets are.

use limiter_common::bucket::{Generation, Resolved, Slot};
use limiter_common::bucket_key::BucketKey;
use limiter_common::compact;
use limiter_common::frame_size::FrameSize;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{
    ActionKind, Algorithm, Ban, Bucket, Control, KeyLeases, Limit, LimitSpec, ListEntry, Listed,
    MAX_BUDGETS, Record, RuleSetHeader, Table, TableKey, lease_of_budget,
};
use limiter_decision::algorithm::Words as _;
use limiter_decision::cell::Cell as _;
use limiter_decision::engine;
use limiter_decision::entries::aggregate::debt;
use limiter_decision::gcra::{self, Charge};
use limiter_decision::host;
use limiter_decision::maps::Maps;
use limiter_decision::meter::{self, Arrival, Charged, Peek, Share, Undo};
use limiter_decision::packet::{self, Bytes, Layer3};
use limiter_decision::table::limit::wall_offset;
use limiter_decision::table::{self, KeyCell, Scratch, TableResult};
use limiter_rules::model::TriePrefix;

use super::excerpt::wait_until;
use super::tables::keyed::ModelKeyed;
use super::{FoundKeyed, Model, Packet};
use crate::Framing;

/// Everything about a packet that can be asked, whether or not the program would reach it.
#[derive(Clone, Debug)]
pub struct Looked {
    /// True if the bypass lets every packet pass.
    pub bypass: bool,
    /// Source of the packet; `None` if it is exempt.
    pub source: Option<Source>,
    /// The list that contains the source, and the entry.
    pub listed: Option<(Listed, ListEntry)>,
    /// Record of the bans of the source.
    pub ban: Option<Ban>,
    /// Generation of the rule set that judges the packet.
    pub generation: Generation,
    /// Header of that rule set.
    pub header: RuleSetHeader,
    /// Rule of the packet in the source table.
    pub rule: Option<LookedSource>,
    /// Rules in the other tables, in the order of the tables.
    pub tables: Vec<LookedTable>,
    /// Tables left out because they ask for facts that are not known of the packet.
    pub left_out: Vec<Table>,
    /// True if it is not known whether a new entry finds space.
    pub doubtful: bool,
}

/// The rule of the source table.
#[derive(Clone, Debug)]
pub struct LookedSource {
    /// Slot of the rule.
    pub slot: Slot,
    /// Limit in the slot.
    pub limit: Limit,
    /// Reason that the source table gives the packet.
    pub reason: Reason,
    /// Packets passed and dropped since the source has had a bucket, if it has one.
    pub counted: Option<[u64; 2]>,
    /// Fill of the bucket; `None` without a limit.
    pub meter: Option<LookedLimit>,
    /// The budget of the class for its packets over the limit.
    pub class: Option<Held>,
}

/// The rule of another table.
#[derive(Clone, Debug)]
pub struct LookedTable {
    /// The table's place in the order.
    pub index: u32,
    /// The table.
    pub table: Table,
    /// The key of the packet in the table.
    pub key: TableKey,
    /// Reason that the table gives the packet, and the number of its rule; `None` without a rule.
    pub reported: Option<(Reason, u32)>,
    /// The slot of the rule.
    pub slot: Slot,
    /// Packets passed and dropped since the key has had a bucket, if it has one.
    pub counted: Option<[u64; 2]>,
    /// Limits of the rule, with their bucket.
    pub held: Option<Held>,
    /// The budget of the class for its packets over the limits.
    pub class: Option<Held>,
}

/// The owner of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A single key.
    Key,
    /// A budget.
    Budget,
    /// All keys without their own bucket.
    Strangers,
}

/// Limits and their bucket.
#[derive(Clone, Debug)]
pub struct Held {
    /// The record with the limits.
    pub record: Record,
    /// Bucket key of the bucket.
    pub holder: Holder,
    /// Packets passed and dropped.
    pub counted: [u64; 2],
    /// How full each limit is.
    pub limits: Vec<LookedLimit>,
}

/// What this node decides by for a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The limit itself, which belongs to this node alone.
    Node,
    /// A valid lease of a limit that nodes share.
    Lease,
    /// This node's share, or what replaces it without contact to the store.
    Share,
    /// Nothing: no packet passes before there is a lease.
    Nothing,
}

/// How full a limit is, in the units that it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookedLimit {
    /// What the decision is based on. All other fields refer to it, so to this node alone.
    pub standing: Standing,
    /// Units that would pass at once now.
    pub remaining: u64,
    /// Time until such a packet conforms; zero if it does. `None` for never, or if a lease must
    /// come first.
    pub conforms_in: Option<Ticks>,
    /// How long such a packet would wait to conform; `None` if packets over the limit do not wait,
    /// or not that long.
    pub waits: Option<Ticks>,
    /// Time until the limit is completely unused; `None` for never, or if other nodes use a part of
    /// it.
    pub full_in: Option<Ticks>,
}

impl LookedLimit {
    /// How full a bucket of the source table is at `now` under its limit, for a packet of some
    /// size that finds this TAT.
    pub fn of_source(limit: &Limit, tat: Ticks, now: Ticks, size: FrameSize) -> Self {
        let conforms = |at| Charge::of_frame(limit, at, size).apply(tat).is_some();
        Self {
            standing: Standing::Node,
            remaining: gcra::remaining(limit, tat, now),
            conforms_in: wait_until(now, conforms),
            waits: None,
            full_in: Some(tat.since(now)),
        }
    }
}

impl Model {
    /// The rules that apply to a packet at `now`, and how full their buckets are. Changes only a
    /// copy.
    pub(super) fn look(&self, packet: &Packet<'_>, now: Ticks) -> Looked {
        match packet.framing {
            Framing::Ethernet => self.look_at(&packet.bytes(packet.frame), packet, now),
            Framing::Layer3 => self.look_at(&packet.bytes(Layer3(packet.frame)), packet, now),
        }
    }

    fn look_at(&self, read: &impl Bytes, packet: &Packet<'_>, now: Ticks) -> Looked {
        let (generation, header) = self.in_force(now);
        let mut looked = Looked {
            bypass: self.control(Control::Bypass) != 0,
            source: None,
            listed: None,
            ban: None,
            generation,
            header,
            rule: None,
            tables: Vec::new(),
            left_out: Vec::new(),
            doubtful: false,
        };
        let packet::Packet::From(source) = packet::parse(read) else {
            return looked;
        };
        looked.source = Some(source);
        looked.ban = self.ban(&source).map(|ban| ban.read());
        looked.listed = engine::listed(self, &source, now).and_then(|listed| {
            let says = |entry: &&ListEntry| entry.at(now) == Some(listed);
            let own = self.lists.get(&TriePrefix::of_source(source.trie_key())).filter(says);
            Some((listed, *own.or_else(|| self.listed_around(&source).filter(says))?))
        });
        let rules = (generation, header);
        let scratch = host::begin(self, read, packet.interface, rules, packet.size, now);
        for index in 0..header.tables() {
            match self.table(generation, index) {
                Some(table) => looked.tables.extend(self.look_in(&scratch, index, table)),
                None => looked.left_out.extend(self.left_out(generation, index)),
            }
        }
        looked.doubtful = self.doubts();
        looked.rule = self.source_rule(&scratch, &source);
        looked
    }

    /// The rule set that judges packets at `now`, as [`engine::classify`] finds it.
    fn in_force(&self, now: Ticks) -> (Generation, RuleSetHeader) {
        let generation = Generation::new(self.generation());
        let header = engine::header(self, generation);
        if header.is_on_trial() && engine::is_trial_over(self, now) {
            return (generation.next(), engine::header(self, generation.next()));
        }
        (generation, header)
    }

    fn look_in(&self, scratch: &Scratch, index: u32, of: &Table) -> Option<LookedTable> {
        let FoundKeyed { key, slot, .. } = self.found_in(scratch, index, of)?;
        if let Some(bucket_key) = compact::compact_bucket_key(of, &key) {
            return self.look_compact(scratch, index, of, (key, &bucket_key));
        }
        let keyed = of.fixed == Slot::NONE.index();
        let counted = Self::keyed(self, &key).map(|bucket| [bucket.passed, bucket.dropped]);
        let bucket = if keyed { table::bucket(self, scratch, index) } else { None };
        if table::peek(self, scratch, bucket.as_ref(), index) == TableResult::STALE {
            table::peek_again(self, scratch, index);
        }
        let reported = scratch.last_reason(index);
        let own = if keyed { Maps::keyed(self, &KeyCell::new(key)) } else { None };
        let leases = scratch.leases(index);
        let held = self.held(scratch, slot, own.map(|own| (own, leases)));
        let action = held.as_ref().map_or(0, |held| held.record.action);
        let class = self.class(scratch, u32::from(action));
        Some(LookedTable {
            index,
            table: *of,
            key,
            reported,
            slot,
            counted: counted.filter(|_| keyed),
            held,
            class,
        })
    }

    /// The rule of a packet in a table with compact keys.
    fn look_compact(
        &self,
        scratch: &Scratch,
        index: u32,
        of: &Table,
        (key, bucket_key): (TableKey, &BucketKey),
    ) -> Option<LookedTable> {
        let generation = scratch.generation();
        let slot = Maps::source_rule(self, generation, bucket_key)?;
        let record = *self.record(slot)?;
        let (bucket, meter) = self.meter_of(scratch, bucket_key, slot)?;
        let counted = bucket.map(|bucket| [bucket.passed, bucket.dropped]);
        // Comes last, because it charges the packet.
        let reported = Some(table::judge_compact_alone(self, scratch, index));
        let has_bucket = self.bucket_of(bucket_key).is_some();
        let held = Held {
            record,
            holder: if has_bucket { Holder::Key } else { Holder::Strangers },
            counted: counted.unwrap_or_default(),
            limits: meter.into_iter().collect(),
        };
        Some(LookedTable {
            index,
            table: *of,
            key,
            reported,
            slot,
            counted,
            held: Some(held),
            class: None,
        })
    }

    /// The limits of the record in a slot, and how full they are.
    fn held(
        &self,
        scratch: &Scratch,
        slot: Slot,
        own: Option<(ModelKeyed, KeyLeases)>,
    ) -> Option<Held> {
        let record = *self.record(slot)?;
        let none = KeyLeases::ASKED;
        let (bucket, holder, leases) = match (record.budget.checked_sub(1), own) {
            (Some(budget), _) => (Maps::budget(self, budget)?, Holder::Budget, none),
            (None, Some((own, leases))) => (own, Holder::Key, leases),
            (None, None) => {
                let strangers = Maps::budget(self, MAX_BUDGETS + record.rule)?;
                (strangers, Holder::Strangers, none)
            }
        };
        if holder != Holder::Key {
            table::update(self, scratch, &bucket, slot, true);
        }
        let words = bucket.bucket();
        let resolved = Resolved::from_raw(words.resolved);
        let in_force = if holder == Holder::Key { None } else { self.record(resolved.slot()) };
        let record = in_force.copied().unwrap_or(record);
        let counted = [words.passed, words.dropped];
        let limits = if record.is_unlimited() { 0 } else { usize::from(record.count) };
        let limits = record.limits.iter().take(limits);
        let limits = (0..).zip(limits).map(|(place, spec)| {
            let units = scratch.units::<Self>(spec.counts());
            match self.lease_in(&record, slot, place, leases, scratch.now()) {
                Err(Standing::Nothing) => leased(Standing::Nothing, 0, units),
                Err(standing) => self.meter(scratch, spec, &bucket, standing),
                Ok(left) => leased(Standing::Lease, left, units),
            }
        });
        let limits = limits.collect();
        Some(Held { record, holder, counted, limits })
    }

    fn class(&self, scratch: &Scratch, action: u32) -> Option<Held> {
        let action = self.action(action).filter(|action| action.kind() == ActionKind::Class)?;
        self.held(scratch, Slot::new(action.target), None)
    }

    /// The lease of a limit; without one, what decides instead.
    fn lease_in(
        &self,
        record: &Record,
        slot: Slot,
        place: u32,
        leases: KeyLeases,
        now: Ticks,
    ) -> Result<u64, Standing> {
        if record.leased >> place & 1 == 0 {
            return Err(Standing::Node);
        }
        let index = match record.budget.checked_sub(1) {
            Some(budget) => Some(lease_of_budget(budget, place)),
            None => leases.lease(slot, place),
        };
        let lease = index.and_then(|index| Maps::lease(self, index)).map(|lease| lease.read());
        let Some(lease) = lease else {
            let nothing = record.needs_leases(place);
            return Err(if nothing { Standing::Nothing } else { Standing::Share });
        };
        if now < Ticks::new(lease.expires) {
            return Ok(lease.granted.saturating_sub(lease.used));
        }
        Err(if record.closed >> place & 1 == 0 { Standing::Share } else { Standing::Nothing })
    }

    fn meter(
        &self,
        scratch: &Scratch,
        spec: &LimitSpec,
        bucket: &ModelKeyed,
        standing: Standing,
    ) -> LookedLimit {
        let (now, offset) = (scratch.now(), wall_offset(self));
        let scale = Resolved::from_raw(bucket.bucket().resolved).scale();
        let units = scratch.units::<Self>(spec.counts());
        let is_super_frame = scratch.size::<Self>().is_super_frame();
        let conforms = |units, now| {
            let arrival = Arrival { now, offset, units, is_super_frame };
            units == 0 || meter::peek(spec, bucket, scale, &arrival) == Peek::Conforming
        };
        let drained = |at| meter::used(spec, bucket, at, offset) == Share::NOTHING;
        let state =
            || Ticks::new(bucket.cell(spec.first.into()).map_or(0, |cell| cell.load() >> 1));
        let remaining = match spec.algorithm() {
            Algorithm::TokenBucket => gcra::remaining(&spec.rate(), state(), now),
            // One more packet may join as long as the backlog is not exceeded.
            Algorithm::LeakyBucket if conforms(1, now) => {
                gcra::remaining(&spec.rate(), state(), now).saturating_add(1)
            }
            Algorithm::LeakyBucket => 0,
            Algorithm::SlidingLog => {
                let copy = ModelKeyed::of(&bucket.bucket());
                let arrival = Arrival { now, offset, units: 1, is_super_frame };
                let passes = || {
                    let charged = meter::charge(spec, &copy, scale, &arrival, &mut Undo::default());
                    charged == Charged::Conforming
                };
                let most = u64::from(spec.log().size);
                (0..most).take_while(|_| passes()).fold(0, |count, _| count + 1)
            }
            Algorithm::FixedWindow | Algorithm::SlidingCounter | Algorithm::SlidingSlots => {
                most(spec.window().limit, |units| conforms(units, now))
            }
        };
        // A waiting packet is sent when the same limit without waiting would let it pass.
        let waits = || {
            let drops = spec.with_longest_wait(Ticks::ZERO);
            wait_until(now, |now| {
                let arrival = Arrival { now, offset, units, is_super_frame };
                meter::peek(&drops, bucket, scale, &arrival) == Peek::Conforming
            })
        };
        let holds = spec.longest_wait() != Ticks::ZERO && conforms(units, now);
        LookedLimit {
            standing,
            remaining,
            conforms_in: wait_until(now, |at| conforms(units, at)),
            waits: holds.then(waits).flatten(),
            full_in: wait_until(now, drained),
        }
    }

    /// The rule of the source table, as [`engine::source`] finds it.
    fn source_rule(&self, scratch: &Scratch, source: &Source) -> Option<LookedSource> {
        let bucket_key = BucketKey::from(*source);
        let slot = Maps::source_rule(self, scratch.generation(), &bucket_key)?;
        let limit = *self.limit(slot)?;
        let (bucket, meter) = self.meter_of(scratch, &bucket_key, slot)?;
        let counted = bucket.map(|bucket| [bucket.passed, bucket.dropped]);
        let class = self.class(scratch, u32::from(limit.action));
        // The source table alone. Comes last, because it charges the packet.
        let reason = table::run_tables(self, scratch, 0).unpack().reason;
        Some(LookedSource { slot, limit, reason, counted, meter, class })
    }

    /// The bucket of a key, and how full it is under the limit in a slot; no meter without a limit.
    fn meter_of(
        &self,
        scratch: &Scratch,
        bucket_key: &BucketKey,
        slot: Slot,
    ) -> Option<(Option<Bucket>, Option<LookedLimit>)> {
        let (now, generation) = (scratch.now(), scratch.generation());
        let limit = *self.limit(slot)?;
        let bucket = self.bucket_of(bucket_key);
        let tat = match &bucket {
            Some(bucket) => {
                let limit_in = |slot| self.limit(slot).copied();
                let moment = |generation| Maps::moment(self, generation);
                engine::arrival(bucket, (slot, generation), limit_in, moment, now)
            }
            None => debt(self, bucket_key, slot),
        };
        let size = scratch.size::<Self>();
        let meter = (!limit.is_unlimited()).then(|| LookedLimit::of_source(&limit, tat, now, size));
        Some((bucket, meter))
    }
}

/// A limit that a lease decides, for a packet of `units`; `left` is what remains of the lease.
fn leased(standing: Standing, left: u64, units: u64) -> LookedLimit {
    let conforms = units <= left;
    LookedLimit {
        standing,
        remaining: left,
        conforms_in: conforms.then_some(Ticks::ZERO),
        waits: None,
        full_in: None,
    }
}

/// The largest number up to `end` for which something holds, provided that it holds for all smaller
/// ones.
fn most(end: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut yes, mut no) = (0, end.saturating_add(1));
    while no - yes > 1 {
        let middle = yes + (no - yes) / 2;
        if holds(middle) { yes = middle } else { no = middle }
    }
    yes
}
