//! Limits of every algorithm behind the one interface, and a bucket to charge them to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use limiter_common::time::{TICK_BITS, Ticks};
use limiter_common::window::WallOffset;
use limiter_common::wire::{Algorithm, Count, LimitSpec, Role, WORDS};
use limiter_decision::gcra::cost;
use limiter_decision::meter::{self, Arrival, Carried, Charged, Peek, Seed, Share, Undo};
use limiter_rules::compile::{self, Quota, SlotError};
use proptest::prelude::*;

use crate::support::{FRAME, Packet, boot, short_period};

pub(crate) const ALGORITHMS: [Algorithm; 6] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
    Algorithm::FixedWindow,
    Algorithm::SlidingLog,
    Algorithm::SlidingCounter,
    Algorithm::SlidingSlots,
];

/// Numbers that a limit is made of; an algorithm takes those that it needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    quota: Quota,
    burst: u64,
    slots: u8,
    error: SlotError,
    first: u8,
}

impl Parts {
    /// A larger one of each.
    pub(crate) fn more(&self) -> Self {
        let requests_per_unit = self.quota.requests_per_unit * 31 + 1;
        Self {
            quota: Quota { requests_per_unit, ..self.quota },
            burst: self.burst * 62 + 1,
            ..*self
        }
    }

    /// A limit of this algorithm.
    pub(crate) fn spec(&self, algorithm: Algorithm) -> LimitSpec {
        let Self { quota, burst, slots, error, first } = *self;
        let role = Role::Hard;
        let spec = match algorithm {
            Algorithm::TokenBucket => {
                let least = if quota.count == Count::Bytes { FRAME } else { 0 };
                let rate = quota.with_burst(burst + least).into();
                LimitSpec::of_rate(algorithm, &compile::limit(&rate, FRAME).unwrap(), role)
            }
            Algorithm::LeakyBucket => {
                // From none to the time of `burst` packets or bytes, and a part of one.
                let units = u128::from(quota.period.nanos()) / u128::from(quota.requests_per_unit);
                let nanos = units * u128::from(burst - 1) + units / 1000 * u128::from(slots);
                let backlog = Duration::from_nanos(u64::try_from(nanos).unwrap().min(1 << 56));
                let limit = compile::leaky_bucket(quota, backlog, FRAME).unwrap();
                LimitSpec::of_rate(algorithm, &limit, role)
            }
            Algorithm::FixedWindow => {
                let limit = compile::fixed_window(quota, FRAME).unwrap();
                LimitSpec::of_window(algorithm, &limit, role)
            }
            Algorithm::SlidingCounter => {
                let limit = compile::sliding_counter(quota, FRAME).unwrap();
                LimitSpec::of_window(algorithm, &limit, role)
            }
            Algorithm::SlidingSlots => {
                let limit = compile::sliding_slots(quota, slots, error, FRAME).unwrap();
                LimitSpec::of_window(algorithm, &limit, role)
            }
            Algorithm::SlidingLog => {
                let packets = Quota {
                    count: Count::Packets,
                    requests_per_unit: quota.requests_per_unit.min(31),
                    ..quota
                };
                LimitSpec::of_log(&compile::sliding_log(packets).unwrap(), Count::Packets, role)
            }
        };
        let room = u8::try_from(WORDS).unwrap() - spec.words;
        spec.at(first % (room + 1))
    }
}

/// Limits small enough that a pattern of arrivals reaches them, in every unit of time.
pub(crate) fn parts(count: Option<Count>) -> impl Strategy<Value = Parts> {
    let counts = match count {
        Some(count) => vec![count],
        None => vec![Count::Packets, Count::Bytes],
    };
    (
        prop::sample::select(counts),
        prop_oneof![1u64..5, 1u64..40],
        FRAME..60_000,
        short_period(),
        prop_oneof![1u64..5, 1u64..40],
        0u64..60_000,
        prop::sample::select(vec![2u8, 4, 8]),
        prop::sample::select(vec![SlotError::Lenient, SlotError::Strict]),
        any::<u8>(),
    )
        .prop_map(|(count, packets, bytes, period, burst, byte_burst, slots, error, first)| {
            let (requests_per_unit, burst) = match count {
                Count::Bytes => (bytes, byte_burst + 1),
                _ => (packets, burst),
            };
            let quota = Quota::new(count, requests_per_unit, period);
            Parts { quota, burst, slots, error, first }
        })
}

/// A limit of any algorithm.
pub(crate) fn spec() -> impl Strategy<Value = LimitSpec> {
    (parts(None), prop::sample::select(ALGORITHMS.to_vec()))
        .prop_map(|(parts, algorithm)| parts.spec(algorithm))
}

/// A limit of packets of any algorithm.
pub(crate) fn packet_spec() -> impl Strategy<Value = LimitSpec> {
    (parts(Some(Count::Packets)), prop::sample::select(ALGORITHMS.to_vec()))
        .prop_map(|(parts, algorithm)| parts.spec(algorithm))
}

/// Two limits of any algorithm that count the same.
pub(crate) fn alike() -> impl Strategy<Value = (LimitSpec, LimitSpec)> {
    let counts = prop::sample::select(vec![Count::Packets, Count::Bytes]);
    let algorithms = || prop::sample::select(ALGORITHMS.to_vec());
    counts
        .prop_flat_map(move |count| {
            (parts(Some(count)), algorithms(), parts(Some(count)), algorithms())
        })
        .prop_map(|(a, first, b, second)| (a.spec(first), b.spec(second)))
        // A log is of packets always.
        .prop_filter("of one unit", |(a, b)| a.counts() == b.counts())
}

/// A limit and a larger one of the same algorithm and windows, in either order.
pub(crate) fn in_one_measure() -> impl Strategy<Value = (LimitSpec, LimitSpec)> {
    (parts(None), prop::sample::select(ALGORITHMS.to_vec()), any::<bool>()).prop_map(
        |(parts, algorithm, swap)| {
            let (few, many) = (parts.spec(algorithm), parts.more().spec(algorithm));
            if swap { (many, few) } else { (few, many) }
        },
    )
}

/// Offsets of the wall clock's windows.
pub(crate) fn offset() -> impl Strategy<Value = WallOffset> {
    boot().prop_map(WallOffset::new)
}

/// The time in which a pattern of arrivals moves, nanoseconds: the window, or what fills the
/// bucket.
pub(crate) fn scale_of(spec: &LimitSpec) -> u64 {
    match spec.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            (capacity(spec) >> TICK_BITS).try_into().unwrap()
        }
        Algorithm::SlidingSlots => spec.window().width * u64::from(spec.window().slots),
        Algorithm::FixedWindow | Algorithm::SlidingCounter => spec.window().width,
        Algorithm::SlidingLog => spec.log().window,
    }
}

/// Capacity: the most that a limit passes at once, in its own measure.
pub(crate) fn capacity(spec: &LimitSpec) -> u128 {
    match spec.algorithm() {
        Algorithm::TokenBucket => spec.rate().tolerance.into(),
        Algorithm::LeakyBucket => {
            u128::from(spec.rate().tolerance) + u128::from(cost(&spec.rate(), 1).get())
        }
        Algorithm::SlidingLog => spec.log().size.into(),
        Algorithm::SlidingCounter => {
            u128::from(spec.window().limit) * u128::from(spec.window().width)
        }
        Algorithm::FixedWindow | Algorithm::SlidingSlots => spec.window().limit.into(),
    }
}

/// Units in the measure of a limit: time for the buckets, packets or bytes for the others, times
/// the window for the counter, whose used part leaks away in time.
pub(crate) fn measure(spec: &LimitSpec, units: u64) -> u128 {
    match spec.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => cost(&spec.rate(), units).get().into(),
        Algorithm::SlidingLog => 1,
        Algorithm::SlidingCounter => u128::from(units) * u128::from(spec.window().width),
        Algorithm::FixedWindow | Algorithm::SlidingSlots => units.into(),
    }
}

/// An amount in the measure of a limit as units, in 2^-20 of one, rounded up.
pub(crate) fn in_units(spec: &LimitSpec, amount: u128) -> u128 {
    let fine = amount << 20;
    match spec.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            (fine << spec.rate().shift).div_ceil(spec.rate().increment.into())
        }
        Algorithm::SlidingCounter => fine.div_ceil(spec.window().width.into()),
        Algorithm::FixedWindow | Algorithm::SlidingSlots | Algorithm::SlidingLog => fine,
    }
}

/// Most that comes back in so many nanoseconds, in the limit's measure: the documented R(t).
pub(crate) fn renewal(spec: &LimitSpec, nanos: u64) -> u128 {
    let nanos = u128::from(nanos);
    let window = spec.window();
    let (width, slots) = (u128::from(window.width), u128::from(window.slots));
    match spec.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => nanos << TICK_BITS,
        Algorithm::FixedWindow => u128::from(window.limit) * nanos.div_ceil(width),
        Algorithm::SlidingCounter => u128::from(window.limit) * nanos,
        Algorithm::SlidingSlots => {
            let more = (nanos.div_ceil(width) + 1).saturating_sub(slots);
            u128::from(window.limit) * more.div_ceil(slots)
        }
        Algorithm::SlidingLog => {
            u128::from(spec.log().size) * (nanos / u128::from(spec.log().window))
        }
    }
}

/// Excess of a last packet over the capacity: the leaky bucket takes a frame whole.
pub(crate) fn last_frame(spec: &LimitSpec) -> u128 {
    match spec.algorithm() {
        Algorithm::LeakyBucket if spec.counts() == Count::Bytes => {
            (cost(&spec.rate(), FRAME).get() - cost(&spec.rate(), 1).get()).into()
        }
        _ => 0,
    }
}

/// True if the bound of the algorithm holds in every window: C + R(t).
pub(crate) fn in_bound(spec: &LimitSpec, passed: &[Packet]) -> bool {
    let most = capacity(spec) + last_frame(spec);
    passed.iter().enumerate().all(|(index, first)| {
        let mut sum = 0;
        passed[index..].iter().all(|packet| {
            sum += measure(spec, packet.units);
            sum <= most + renewal(spec, packet.at - first.at)
        })
    })
}

/// A bucket's words, and the scale bit that its limit has.
pub(crate) struct Metered {
    pub(crate) words: [AtomicU64; WORDS],
    pub(crate) scale: bool,
    pub(crate) offset: WallOffset,
}

/// More packets than any limit of the tests has room for.
const ENDLESS: usize = 10_000_000;

impl Metered {
    /// Nothing charged, and noise in the words of other limits.
    pub(crate) fn new(spec: &LimitSpec, scale: bool, offset: WallOffset) -> Self {
        let mut noise = 0x9e37_79b9_7f4a_7c15u64;
        let words = std::array::from_fn(|index| {
            noise = noise.rotate_left(17).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let index = u8::try_from(index).unwrap();
            let own = index >= spec.first && index - spec.first < spec.words;
            AtomicU64::new(if own { u64::from(scale) } else { noise })
        });
        Self { words, scale, offset }
    }

    /// All words as they stand.
    pub(crate) fn raw(&self) -> [u64; WORDS] {
        std::array::from_fn(|index| self.words[index].load(Ordering::Relaxed))
    }

    fn arrival(&self, packet: Packet) -> Arrival {
        let Packet { at, units } = packet;
        let now = Ticks::from_nanos(at);
        Arrival { now, offset: self.offset, units, is_super_frame: false }
    }

    /// Passes copies of a packet until one is over the limit.
    pub(crate) fn exhaust(&self, spec: &LimitSpec, packet: Packet) {
        let passed = (0..ENDLESS).take_while(|_| self.passes(spec, packet)).count();
        assert!(passed < ENDLESS, "{passed} packets at once pass {spec:?}");
    }

    pub(crate) fn peek(&self, spec: &LimitSpec, packet: Packet) -> Peek {
        meter::peek(spec, &&self.words, self.scale, &self.arrival(packet))
    }

    pub(crate) fn charge(&self, spec: &LimitSpec, packet: Packet) -> Result<Undo, Charged> {
        let mut undo = Undo { index: 77, old: 7, new: 7 };
        let arrival = self.arrival(packet);
        match meter::charge(spec, &&self.words, self.scale, &arrival, &mut undo) {
            Charged::Conforming => Ok(undo),
            other => {
                assert_eq!(undo, Undo { index: 77, old: 7, new: 7 }, "written in vain");
                Err(other)
            }
        }
    }

    pub(crate) fn passes(&self, spec: &LimitSpec, packet: Packet) -> bool {
        let charged = self.charge(spec, packet);
        assert!(matches!(charged, Ok(_) | Err(Charged::Over)), "{charged:?}");
        charged.is_ok()
    }

    pub(crate) fn undo(&self, undo: &Undo) -> bool {
        meter::undo(&&self.words, undo)
    }

    pub(crate) fn used(&self, spec: &LimitSpec, at: u64) -> Share {
        meter::used(spec, &&self.words, Ticks::from_nanos(at), self.offset)
    }

    pub(crate) fn used_at(&self, spec: &LimitSpec, at: u64) -> u64 {
        meter::used_at(spec, &&self.words, Ticks::from_nanos(at), self.offset).used
    }

    /// True if a changed limit takes words over, and not an amount.
    fn goes_on(old: &LimitSpec, new: &LimitSpec) -> bool {
        old.same_state(new) || old.same_log(new)
    }

    /// The bucket of a limit that takes the words of the present one over.
    fn taken_over(&self, old: &LimitSpec, new: &LimitSpec, at: u64) -> Self {
        let next = Self::new(new, !self.scale, self.offset);
        let used = self.used_at(old, at);
        for index in 0..u32::from(new.words) {
            let place = |spec: &LimitSpec| usize::try_from(u32::from(spec.first) + index).unwrap();
            let state = if old.same_state(new) {
                self.words[place(old)].load(Ordering::Relaxed) >> 1
            } else {
                meter::resized(old, new, &&self.words, used, index)
            };
            let word = &next.words[place(new)];
            word.store(state << 1 | u64::from(next.scale), Ordering::Relaxed);
        }
        next
    }

    /// Use of a limit once the present one is changed into it.
    pub(crate) fn carries(&self, old: &LimitSpec, new: &LimitSpec, at: u64) -> Carried {
        let at = Ticks::from_nanos(at);
        meter::carried((old, new), &&self.words, at, self.offset)
    }

    /// The bucket of a new limit of which so much is used.
    pub(crate) fn seeded(&self, spec: &LimitSpec, carried: Carried) -> Self {
        let next = Self::new(spec, !self.scale, self.offset);
        let seed = Seed::new(spec, carried, self.offset);
        for index in 0..u32::from(spec.words) {
            let state = seed.word(index);
            assert_eq!(state, meter::seed(spec, carried, self.offset, index));
            assert!(state < 1 << 63, "the highest bit is not ours");
            let word = &next.words[usize::try_from(u32::from(spec.first) + index).unwrap()];
            word.store(state << 1 | u64::from(next.scale), Ordering::Relaxed);
        }
        next
    }

    /// The bucket after its limit was changed.
    pub(crate) fn carried(&self, old: &LimitSpec, new: &LimitSpec, at: u64) -> Self {
        if Self::goes_on(old, new) {
            return self.taken_over(old, new, at);
        }
        self.seeded(new, self.carries(old, new, at))
    }
}
