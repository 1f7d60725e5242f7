//! The limit that traffic needs. For each source and each of [`RATES`] rates: the smallest burst
//! with which a token bucket of that rate drops nothing, known in network calculus as the sigma-rho
//! curve. It is the largest debt of a bucket without a limit. This takes one word and one maximum
//! per rate, and one pass, and it is exact, because the decision's own arithmetic counts the debt.

mod chance;
mod curve;
mod proposal;
mod rates;
mod report;

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use ipnet::IpNet;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::wire::Count;

use curve::Curve;
pub use proposal::{FEW_PACKETS, Proposal, rule_file};
pub use rates::RATES;
use rates::Rate;
pub use report::{AtRate, Hit, Report, SHARES, Seldom, TopSource};

use limiter_rules::LimitError;
use limiter_rules::model::{SOURCE_MASKS, SourceMasks, TriePrefix};

/// Most sources with more than one packet that are kept, with 700 bytes each. Together with
/// [`MAX_SOURCES`] they stay within [`crate::explain::MAX_MEGABYTES`].
pub const MAX_CURVES: usize = 1 << 17;

/// Most sources that are kept: a table of 2^21 places of 49 bytes holds so many. Beyond either
/// bound, only a share of the sources is kept, chosen by a hash.
pub const MAX_SOURCES: usize = 7 << 18;

/// Time of the first observation on limiter's clock. Later observations may be older.
const FIRST: u64 = 86_400_000_000_000;

/// Longest time without packets that counts as observed, in nanoseconds: nobody observed the time
/// between two captures that are read as one.
const PAUSE: u64 = 10_000_000_000;

/// A packet of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Time in nanoseconds, on any clock that all observations share.
    pub nanos: u64,
    /// The source of the packet.
    pub source: Source,
    /// Bytes of the packet.
    pub bytes: u64,
}

/// Observed things, each of which is a unit of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Observed {
    /// Packets, of which a limit may count bytes.
    #[default]
    Packets,
    /// Requests of access logs.
    Requests,
}

impl Observed {
    /// Their name.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Requests => "requests",
        }
    }

    /// How to have more of them.
    const fn more(self) -> &'static str {
        match self {
            Self::Packets => "capture for longer",
            Self::Requests => "take a longer log",
        }
    }
}

/// Settings of a tuning.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What is observed.
    pub observed: Observed,
    /// Unit that the limit will count: packets or bytes.
    pub count: Count,
    /// Which part of a source address has its own bucket.
    pub masks: SourceMasks,
    /// Prefixes to leave out, such as those of known attackers.
    pub excluded: Vec<IpNet>,
    /// Share of the sources that the proposal must spare, 0 to 1.
    pub spare: f64,
    /// The largest frame in bytes: a burst in bytes must hold one.
    pub max_frame: u64,
    /// How many sources to list: those that send most, and those that are hit.
    pub named: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            observed: Observed::Packets,
            count: Count::Packets,
            masks: SOURCE_MASKS,
            excluded: Vec::new(),
            spare: 0.999,
            max_frame: 1522,
            named: 20,
        }
    }
}

#[derive(Debug)]
struct Kept {
    packets: u64,
    bytes: u64,
    state: KeptPackets,
}

#[derive(Debug)]
enum KeptPackets {
    /// One packet: its time in ticks.
    One(u64),
    More(Box<Curve>),
}

/// A tuning: takes observations one by one.
#[derive(Debug)]
pub struct Tuner {
    settings: Settings,
    rates: Vec<Rate>,
    kept: HashMap<Source, Kept>,
    curves: usize,
    /// Only sources whose hash ends in so many zero bits are kept.
    level: u32,
    hash: RandomState,
    began: Option<u64>,
    first: u64,
    last: u64,
    /// Observed time in nanoseconds, bounded as described at [`PAUSE`].
    seen: u64,
    packets: u64,
    bytes: u64,
    excluded: u64,
    /// [`MAX_CURVES`] and [`MAX_SOURCES`], except in tests.
    room: [usize; 2],
}

impl Tuner {
    /// Makes a tuning without observations.
    ///
    /// # Errors
    ///
    /// If the unit has no such rates: only packets and bytes have.
    pub fn new(settings: Settings) -> Result<Self, LimitError> {
        let rates = rates::all(settings.count, settings.max_frame)?;
        Ok(Self {
            settings,
            rates,
            kept: HashMap::new(),
            curves: 0,
            level: 0,
            hash: RandomState::new(),
            began: None,
            first: 0,
            last: 0,
            seen: 0,
            packets: 0,
            bytes: 0,
            excluded: 0,
            room: [MAX_CURVES, MAX_SOURCES],
        })
    }

    /// Adds a packet.
    pub fn observe(&mut self, observation: &Observation) {
        let Observation { nanos, source, bytes } = *observation;
        self.add(nanos, source, (1, bytes));
    }

    /// Adds a packet of a capture. If it is longer than a frame, it counts as the several packets
    /// that the kernel joined.
    pub fn observe_joined(&mut self, observation: &Observation) {
        let Observation { nanos, source, bytes } = *observation;
        let frames = bytes.div_ceil(self.settings.max_frame.max(1)).max(1);
        self.add(nanos, source, (frames, bytes));
    }

    /// Adds simultaneous packets of a source, without lengths: for limits that count packets.
    pub fn observe_many(&mut self, nanos: u64, source: Source, packets: u64) {
        self.add(nanos, source, (packets, 0));
    }

    /// Removes the sources for which `stays` is false, with all of their packets. A prefix that is
    /// one bucket is represented by its first address.
    pub fn retain(&mut self, stays: impl Fn(&Source) -> bool) {
        let (mut packets, mut bytes) = (0u64, 0u64);
        self.kept.retain(|source, kept| {
            let stays = stays(source);
            if !stays {
                packets = packets.saturating_add(kept.packets);
                bytes = bytes.saturating_add(kept.bytes);
            }
            stays
        });
        self.packets = self.packets.saturating_sub(packets);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.count_curves();
    }

    fn add(&mut self, nanos: u64, source: Source, (packets, bytes): (u64, u64)) {
        let key = masked(source, self.settings.masks);
        if self.is_excluded(source) {
            self.excluded = self.excluded.saturating_add(packets);
            return;
        }
        let began = *self.began.get_or_insert(nanos);
        if self.packets == 0 {
            (self.first, self.last) = (nanos, nanos);
        }
        self.seen = self.seen.saturating_add(nanos.saturating_sub(self.last).min(PAUSE));
        self.first = self.first.min(nanos);
        self.last = self.last.max(nanos);
        self.packets = self.packets.saturating_add(packets);
        self.bytes = self.bytes.saturating_add(bytes);
        if !self.is_chosen(&key) {
            return;
        }
        let now = Ticks::from_nanos(nanos.saturating_add(FIRST).saturating_sub(began));
        let count = self.settings.count;
        let units = |packets: u64, bytes: u64| if count == Count::Bytes { bytes } else { packets };
        let new = || Kept { packets: 0, bytes: 0, state: KeptPackets::One(now.get()) };
        let kept = self.kept.entry(key).or_insert_with(new);
        if kept.packets.saturating_add(packets) > 1 {
            if let KeptPackets::One(first) = kept.state {
                let mut curve = Box::<Curve>::default();
                if kept.packets > 0 {
                    curve.add(&self.rates, Ticks::new(first), units(1, kept.bytes));
                }
                kept.state = KeptPackets::More(curve);
                self.curves += 1;
            }
            if let KeptPackets::More(curve) = &mut kept.state {
                curve.add(&self.rates, now, units(packets, bytes));
            }
        }
        kept.packets = kept.packets.saturating_add(packets);
        kept.bytes = kept.bytes.saturating_add(bytes);
        let [curves, sources] = self.room;
        while self.curves > curves || self.kept.len() > sources {
            self.level += 1;
            let (hash, level) = (&self.hash, self.level);
            self.kept.retain(|key, _| chosen(hash, key, level));
            self.count_curves();
        }
    }

    fn count_curves(&mut self) {
        let more = self.kept.values().filter(|kept| matches!(kept.state, KeptPackets::More(_)));
        self.curves = more.count();
    }

    fn is_chosen(&self, key: &Source) -> bool {
        chosen(&self.hash, key, self.level)
    }

    fn is_excluded(&self, source: Source) -> bool {
        if self.settings.excluded.is_empty() {
            return false;
        }
        let selector = TriePrefix::of_source(source.trie_key()).selector();
        let Some(limiter_rules::Selector::Prefix(net)) = selector else { return false };
        self.settings.excluded.iter().any(|excluded| excluded.contains(&net))
    }
}

/// True for one of 2^`level` sources.
fn chosen(hash: &RandomState, key: &Source, level: u32) -> bool {
    hash.hash_one(key).trailing_zeros() >= level
}

/// The part of a source that has its own bucket. Without a mask for its family, a source is
/// unchanged.
fn masked(source: Source, masks: SourceMasks) -> Source {
    match (source, masks.v4, masks.v6) {
        (Source::V4(address), Some(bits), _) => {
            let mask = u32::MAX.checked_shl(32u32.saturating_sub(bits.into())).unwrap_or(0);
            Source::V4((u32::from_be_bytes(address) & mask).to_be_bytes())
        }
        (Source::V6(prefix), _, Some(bits)) => {
            let mask = u64::MAX.checked_shl(64u32.saturating_sub(bits.into())).unwrap_or(0);
            Source::V6((u64::from_be_bytes(prefix) & mask).to_be_bytes())
        }
        (source, ..) => source,
    }
}

#[cfg(test)]
mod tests;
