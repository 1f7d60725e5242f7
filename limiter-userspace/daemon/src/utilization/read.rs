//! A reading of one bucket: its counters, and the used share of its limits.

use limiter_common::bucket::{Resolved, Slot, Word};
use limiter_common::time::Ticks;
use limiter_common::window::WallOffset;
use limiter_common::wire::{
    Algorithm, Bucket, Count, KeyedBucket, Limit, LimitSpec, RULE_NONE, Record, Role,
};
use limiter_decision::gcra;
use limiter_model::used_share;

/// Limits to which a bucket is charged: their slot in one of the two stores.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) slot: Slot,
    pub(super) keyed: bool,
}

impl Place {
    /// Encodes the place in one number: a slot has 19 bits.
    pub(super) const fn raw(self) -> u32 {
        self.slot.index() | (self.keyed as u32) << 31
    }
}

/// The values of a bucket in a map.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    /// Limits to which the bucket is charged: [`Place::raw`].
    pub(super) place: u32,
    pub(super) rule: u32,
    /// Packets that passed since the bucket was made.
    pub(super) passed: u64,
    /// Packets that were dropped since then.
    pub(super) dropped: u64,
    /// Used share of the limit at the reading, 0 to 1.
    pub(super) near: f32,
    /// Largest share of the limit that one packet can use.
    pub(super) per_packet: f32,
}

impl Read {
    /// A bucket without limits in force.
    pub(super) const fn unlimited(place: u32) -> Self {
        Self { place, rule: RULE_NONE, passed: 0, dropped: 0, near: 0.0, per_packet: 0.0 }
    }
}

/// Reads a bucket of the source table. `limit` is the limit to which it is charged, with its
/// capacity in units, if that limits anything.
pub(super) fn of_source(
    bucket: &Bucket,
    limit: Option<(Limit, u64)>,
    max_frame: u64,
    now: Ticks,
) -> Read {
    let place = Place { slot: Resolved::from_raw(bucket.resolved).slot(), keyed: false }.raw();
    let (passed, dropped) = (bucket.passed, bucket.dropped);
    let Some((limit, capacity)) = limit else {
        return Read { passed, dropped, ..Read::unlimited(place) };
    };
    let left = gcra::remaining(&limit, Word::from_raw(bucket.word).tat(), now);
    Read {
        place,
        rule: limit.rule,
        passed,
        dropped,
        near: part(capacity.saturating_sub(left), capacity),
        per_packet: part(units(limit.counts(), max_frame), capacity),
    }
}

/// Reads a bucket of a keyed table, or of a budget. `record` has the limits to which it is charged.
pub(super) fn of_keyed(
    bucket: &KeyedBucket,
    record: Option<&Record>,
    max_frame: u64,
    (now, offset): (Ticks, WallOffset),
) -> Read {
    let place = Place { slot: Resolved::from_raw(bucket.resolved).slot(), keyed: true }.raw();
    let (passed, dropped) = (bucket.passed, bucket.dropped);
    let Some(record) = record else {
        return Read { passed, dropped, ..Read::unlimited(place) };
    };
    let (mut near, mut per_packet) = (0f32, 0f32);
    let limits = record.limits.iter().take(record.count.into());
    for spec in limits.filter(|spec| spec.role() != Role::Soft) {
        let capacity = capacity(spec);
        let used = if spec.algorithm() == Algorithm::TokenBucket {
            let state = usize::from(spec.first);
            let word = bucket.words.get(state).copied().unwrap_or_default();
            let left = gcra::remaining(&spec.rate(), Word::from_raw(word).tat(), now);
            part(capacity.saturating_sub(left), capacity)
        } else {
            part(used_share(spec, bucket, now, offset).raw(), 1 << 32)
        };
        near = near.max(used);
        per_packet = per_packet.max(part(units(spec.counts(), max_frame), capacity));
    }
    Read { place, rule: record.rule, passed, dropped, near, per_packet }
}

/// Most units that one packet is charged.
fn units(count: Count, max_frame: u64) -> u64 {
    if count == Count::Bytes { max_frame } else { 1 }
}

/// Units that fit into a limit at once.
fn capacity(spec: &LimitSpec) -> u64 {
    match spec.algorithm() {
        Algorithm::TokenBucket => gcra::remaining(&spec.rate(), Ticks::ZERO, Ticks::ZERO),
        // The last unit may begin as long as the backlog has not ended.
        Algorithm::LeakyBucket => {
            gcra::remaining(&spec.rate(), Ticks::ZERO, Ticks::ZERO).saturating_add(1)
        }
        Algorithm::SlidingLog => spec.log().size.into(),
        Algorithm::FixedWindow | Algorithm::SlidingCounter | Algorithm::SlidingSlots => {
            spec.window().limit
        }
    }
}

/// A part of a whole, 0 to 1.
#[expect(clippy::cast_precision_loss, reason = "a share is reported to a few digits")]
fn part(part: u64, whole: u64) -> f32 {
    (part as f32 / whole.max(1) as f32).min(1.0)
}
