//! The decision for one packet: parse, ask the lists, charge every bucket that it falls under.
//!
//! With the source table alone and nothing but drops over its limits, this is one look-up in a
//! bucket map: [`source`]. Everything else goes through [`crate::table::drive`].

pub mod source;

use crate::bucket::{Generation, Resolved, Slot, Word};
use crate::cell::{Cell, Meter};
use crate::change::Changes;
use crate::gcra::Charge;
use crate::packet::{self, Bytes, Packet};
use crate::room::Spaces;
use crate::source::Source;
use crate::table::Steps;
use crate::time::Ticks;
use crate::verdict::{Reason, Verdict};
use crate::wire::{Bucket, Limit, Listed, RULE_NONE, RuleSetHeader};

pub use source::{Change, arrival};

/// Tries of one charge before the packet is dropped as [`Reason::Contended`]. A try fails only when
/// another CPU passed a packet of the same source in between.
pub const MAX_TRIES: u64 = 16;

/// Times that a packet may find the bucket pointed at another limit before it is dropped as
/// [`Reason::Contended`]. One rule change takes two; a second one that finds the first unfinished
/// takes four, and an exchange that another CPU wins one more.
pub const MAX_ROUNDS: u64 = 5;

/// What became of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insert {
    /// The bucket was made.
    Made,
    /// Another CPU made it first.
    Exists,
    /// There is no room for it, or there are more new ones than may be.
    Refused,
}

/// The maps, as the decision sees them.
pub trait Maps: Spaces + Changes + Sized {
    /// A bucket in place.
    type Meter: Meter;

    /// Whether `limiter off` is in force.
    fn brake(&self) -> bool;

    /// The time now, when the packet came with one that may be up to [`crate::clock::SLACK`] before. What is charged is charged
    /// by this.
    fn exact(&self, recent: Ticks) -> Ticks {
        recent
    }

    /// What the lists say of a source at `now`: of the source itself, else of the longest prefix.
    fn listed(&self, source: &Source, now: Ticks) -> Option<Listed>;

    /// Whether a source is banned at the exact time of `now`.
    fn banned(&self, _source: &Source, _now: Ticks) -> bool {
        false
    }

    /// The rule set in force.
    fn generation(&self) -> Generation;

    /// What there is in a rule set beside the source table.
    fn header(&self, _generation: Generation) -> RuleSetHeader {
        RuleSetHeader::default()
    }

    /// Whether a rule set on trial has ended at the exact time of `now`: CPUs that disagree on the rule set would convert buckets to
    /// and fro. Asked only where the header says that the one in force is.
    fn trial_ended(&self, _now: Ticks) -> bool {
        false
    }

    /// The bucket of a source.
    fn meter(&self, source: &Source) -> Option<Self::Meter>;

    /// Counts a packet of a source that was dropped.
    fn count_drop(&self, _source: &Source, meter: &Self::Meter) {
        meter.count(false);
    }

    /// [`source::count`].
    fn count_source(&self, source: &Source, passed: bool) {
        source::count(self, source, passed);
    }

    /// Makes a bucket, only if there is none and there is room: [`crate::room::insert`].
    fn insert(&self, source: &Source, bucket: &Bucket, now: Ticks) -> Insert;

    /// A bucket that sources without one of their own share, by an index below
    /// [`crate::wire::AGGREGATES`].
    fn aggregate(&self, index: u32) -> Option<impl Cell>;

    /// [`crate::room::aggregate::judge`].
    fn judge_aggregate(&self, source: &Source, slot: Slot, length: u64, now: Ticks) -> Reason {
        match self.limit(slot) {
            Some(limit) => crate::room::aggregate::judge(self, source, slot, limit, length, now),
            None => Reason::NoRule,
        }
    }

    /// [`crate::room::aggregate::debt`].
    fn debt(&self, source: &Source, slot: Slot) -> Ticks {
        crate::room::aggregate::debt(self, source, slot)
    }

    /// [`source::first`].
    fn first(
        &self,
        generation: Generation,
        source: &Source,
        length: u64,
        now: Ticks,
        defer: bool,
    ) -> (Packed, Change) {
        source::first(self, generation, source, length, now, defer)
    }

    /// [`source::without_bucket`].
    fn without_bucket(
        &self,
        generation: Generation,
        source: &Source,
        length: u64,
        now: Ticks,
    ) -> Packed {
        source::without_bucket(self, generation, source, length, now).pack()
    }

    /// The longest matching prefix of the rule set.
    fn resolve(&self, generation: Generation, source: &Source) -> Option<Slot>;

    /// The limit in a slot.
    fn limit(&self, slot: Slot) -> Option<&Limit>;

    /// [`source::charge_again`].
    fn charge_again(
        &self,
        meter: &Self::Meter,
        generation: Generation,
        source: &Source,
        length: u64,
        now: Ticks,
        stored: &mut Change,
    ) -> Packed {
        source::charge_again(self, meter, generation, source, length, now, stored).pack()
    }

    /// [`source::re_resolve`].
    fn re_resolve(&self, meter: &Self::Meter, old: Resolved, generation: Generation, slot: Slot) {
        source::re_resolve(self, meter, old, generation, slot);
    }

    /// [`source::rescale`].
    fn rescale(&self, meter: &Self::Meter, resolved: Resolved, word: Word, now: Ticks) {
        source::rescale(self, meter, resolved, word, now);
    }

    /// [`source::charge_contended`].
    fn charge_contended(
        &self,
        meter: &Self::Meter,
        scale: bool,
        charge: &Charge,
        change: &mut Change,
    ) -> Option<Reason> {
        source::charge_contended(meter.word(), scale, charge, change)
    }
}

/// What happened to a packet, and under which rule of the source table ([`RULE_NONE`] for none). Of a
/// packet that was dropped: under which rule at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The reason; the verdict follows from it.
    pub reason: Reason,
    /// The rule number.
    pub rule: u32,
    /// What the rule counts.
    pub counted: Reason,
    /// What else to do: an index into `ACTIONS`.
    pub action: u16,
}

impl Outcome {
    /// A packet that left under a rule.
    #[inline(always)]
    pub const fn new(reason: Reason, rule: u32) -> Self {
        Self { reason, rule, counted: reason, action: 0 }
    }

    /// A packet that no rule was asked for.
    #[inline(always)]
    pub const fn without_rule(reason: Reason) -> Self {
        Self::new(reason, RULE_NONE)
    }

    /// None yet: the bucket of the packet's source is leaving. No other contended packet has an action.
    pub(crate) const GONE: Self = Self { action: 1, ..Self::without_rule(Reason::Contended) };

    /// Whether it is over a limit whose action is still to be asked.
    #[inline(always)]
    pub const fn is_deferred(&self) -> bool {
        matches!(self.reason, Reason::OverLimit) && self.action != 0
    }

    /// In one word.
    #[inline(always)]
    pub const fn pack(self) -> Packed {
        let drops = matches!(self.reason.verdict(), Verdict::Drop);
        Packed(
            (self.rule as u64) << 32
                | (self.action as u64) << 16
                | (self.counted.index() as u64) << 9
                | (drops as u64) << 8
                | self.reason.index() as u64,
        )
    }
}

/// An [`Outcome`] in one word: `rule:32 | action:16 | counted:7 | drops:1 | reason:8`. The verifier
/// walks both sides of every branch over a reason, so it is unpacked as late as possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed(u64);

impl Packed {
    /// Takes what [`Packed::raw`] gave.
    #[inline(always)]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The word.
    #[inline(always)]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// No outcome yet: the bucket of the packet's source came or went meanwhile.
    pub(crate) const GONE: Self = Outcome::GONE.pack();

    /// No outcome yet: the packet goes through so many tables.
    #[inline(always)]
    const fn of_tables(tables: u32) -> Self {
        Self((tables as u64) << 32 | 0xff)
    }

    /// The tables that the packet is still to go through; `None` for an outcome.
    #[inline(always)]
    pub const fn tables(self) -> Option<u32> {
        if self.0 & 0xff == 0xff { Some((self.0 >> 32) as u32) } else { None }
    }

    /// Whether the packet is dropped.
    #[inline(always)]
    pub const fn drops(self) -> bool {
        self.0 & 0x100 != 0
    }

    /// Whether the packet is one that events tell of: dropped, or it would be if its rule were not in
    /// shadow mode.
    #[inline(always)]
    pub const fn is_told(self) -> bool {
        self.drops() || self.is(Reason::Shadow)
    }

    /// [`Outcome::is_deferred`].
    #[inline(always)]
    pub const fn is_deferred(self) -> bool {
        self.0 & 0xff == Reason::OverLimit as u64 && self.0 >> 16 & 0xffff != 0
    }

    /// What else to do: an index into `ACTIONS`.
    #[inline(always)]
    pub const fn action(self) -> u32 {
        (self.0 >> 16 & 0xffff) as u32
    }

    /// The rule number.
    #[inline(always)]
    pub const fn rule(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Whether the packet left with this reason.
    #[inline(always)]
    pub const fn is(self, reason: Reason) -> bool {
        self.0 & 0xff == reason as u64
    }

    /// The number of its reason.
    #[inline(always)]
    pub const fn reason_index(self) -> u32 {
        (self.0 & 0xff) as u32
    }

    /// The number of the reason that its rule counts.
    #[inline(always)]
    pub const fn counted_index(self) -> u32 {
        (self.0 >> 9 & 0x7f) as u32
    }

    /// The same packet, its rule counting another reason, by its number.
    #[inline(always)]
    #[must_use]
    pub const fn counted_as(self, reason: u32) -> Self {
        Self(self.0 & !0xfe00 | ((reason & 0x7f) as u64) << 9)
    }

    /// The same packet, passed with another reason, by its number, and with another action.
    #[inline(always)]
    #[must_use]
    pub const fn passed_as(self, reason: u32, action: u32) -> Self {
        let reason = (reason & 0xff) as u64;
        let action = ((action & 0xffff) as u64) << 16;
        Self(self.0 & !0xffff_01ff | action | reason)
    }

    /// The same packet, its sender told that it was dropped.
    #[inline(always)]
    #[must_use]
    pub const fn rejected(self) -> Self {
        let rejected = Reason::Rejected as u64;
        Self(self.0 & !0xfeff | rejected << 9 | rejected)
    }

    /// The outcome.
    #[inline(always)]
    pub const fn unpack(self) -> Outcome {
        Outcome {
            reason: Reason::from_index((self.0 & 0xff) as u32),
            rule: (self.0 >> 32) as u32,
            counted: Reason::from_index((self.0 >> 9 & 0x7f) as u32),
            action: (self.0 >> 16 & 0xffff) as u16,
        }
    }
}

/// The source table alone, of a rule set that has nothing else: over a limit is a drop.
#[inline(always)]
pub fn plain_source<M: Maps>(
    maps: &M,
    generation: Generation,
    source: &Source,
    length: u64,
    now: Ticks,
) -> Packed {
    source::judge(maps, generation, source, length, now, false).0
}

/// Judges a frame of `length` bytes (of which `frame` may show only the beginning). `steps` are the
/// parts of [`crate::table::drive`].
#[inline(always)]
pub fn judge<M: Maps>(
    maps: &M,
    steps: &impl Steps,
    frame: &impl Bytes,
    length: u64,
    now: Ticks,
) -> Packed {
    let gate = gate(maps, steps, frame, length, now);
    match gate.tables() {
        Some(tables) => steps.drive(tables),
        None => gate,
    }
}

/// Everything before the tables, and the source table where there are none: a verdict, or
/// [`Packed::tables`] for [`Steps::drive`]. `now` may be up to [`crate::clock::SLACK`] before: an entry of a list ends that much later.
#[inline(always)]
pub fn gate<M: Maps>(
    maps: &M,
    steps: &impl Steps,
    frame: &impl Bytes,
    length: u64,
    now: Ticks,
) -> Packed {
    if maps.brake() {
        return without_rule(Reason::Brake);
    }
    if now.is_past_range() {
        return without_rule(Reason::Untracked);
    }
    let source = match packet::parse(frame) {
        Packet::Exempt(reason) => return without_rule(reason),
        Packet::From(source) => source,
    };
    match maps.listed(&source, now) {
        Some(Listed::Allow | Listed::Management) => return without_rule(Reason::Allowed),
        Some(Listed::Deny) => return without_rule(Reason::Denied),
        None => {}
    }
    if maps.banned(&source, now) {
        return without_rule(Reason::Banned);
    }
    let mut generation = maps.generation();
    let mut header = maps.header(generation);
    if header.is_on_trial() && maps.trial_ended(now) {
        // The generation after it has the buffers of the one before it, where nothing was written since.
        generation = generation.next();
        header = maps.header(generation);
    }
    if header.drops_martians() && source.is_martian() {
        return without_rule(Reason::Martian);
    }
    if header.is_plain() {
        return steps.plain_source(generation, &source, length, now);
    }
    steps.begin_packet(generation, header, length, maps.exact(now));
    Packed::of_tables(header.tables())
}

#[inline(always)]
const fn without_rule(reason: Reason) -> Packed {
    Outcome::without_rule(reason).pack()
}
