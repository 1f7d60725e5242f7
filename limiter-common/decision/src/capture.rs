//! Chooses the packets that a capture reports, and how much of the budget each may use.
//!
//! An observation reports every packet of a share of the sources. Sources have *levels* by a secret
//! hash: half of them level 0, a quarter level 1, and so on. The rest of the budget and of the ring
//! is reserved for the higher levels, so that packets of level 0 are missed first. A level without
//! a missed packet was observed completely.

use limiter_common::bucket_key::BucketKey;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::wire::{CAPTURED_BYTES, CaptureFilter, EventBudget, LEVELS};

use crate::entries::fingerprint::hash;
use crate::event::EventRate;
use crate::outcome::Packed;

const LAST: u32 = LEVELS - 1;

/// The level of a packet that is reported, and how far it is above the lowest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// The level of its source, below [`LEVELS`].
    pub level: u32,
    /// The number of reported levels below it; [`Level::ALONE`] if sources have no order.
    pub above: u32,
}

impl Level {
    /// [`Level::above`] of a packet for which nothing is reserved.
    pub const ALONE: u32 = 63;

    /// The level of each packet where all sources are reported.
    pub const ONLY: Self = Self { level: LAST, above: Self::ALONE };

    /// Ticks of a budget's credit that are reserved for higher levels.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn kept_of_credit(self, credit: u64) -> u64 {
        credit >> 1 >> (self.above & 63)
    }

    /// True if a ring with `used` bytes has space for `size` more, besides what is reserved for
    /// higher levels.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn has_room(self, used: u64, size: u64) -> bool {
        let kept = (CAPTURED_BYTES as u64) >> 1 >> (self.above & 63);
        used + size + kept <= CAPTURED_BYTES as u64
    }
}

impl crate::register::Register for Option<Level> {
    const LOST: Self = None;

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn to_register(self) -> u64 {
        match self {
            Some(Level { level, above }) => 1 << 32 | u64::from(above) << 8 | u64::from(level),
            None => 0,
        }
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn of_register(register: u64) -> Self {
        if register == 0 {
            return None;
        }
        let low = (register & 0xffff_ffff) as u32;
        Some(Level { level: low & LAST, above: low >> 8 & 63 })
    }
}

/// The level of a source: the number of leading zeros in the hash of its name.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn level_of(source: &Source, seed: u64) -> u32 {
    level_of_hash(hash_of(source, seed))
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn hash_of(source: &Source, seed: u64) -> u64 {
    // The two IPv6 prefixes without a name belong to nobody.
    hash(BucketKey::from(*source).name().unwrap_or(0), seed)
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn level_of_hash(hash: u64) -> u32 {
    // The last level has all remaining sources.
    (hash | 1 << (63 - LAST)).leading_zeros()
}

/// True if a capture asks for packets with this outcome.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn asks_for(filter: &CaptureFilter, outcome: Packed) -> bool {
    let reason = filter.reasons >> (outcome.reason_index() & 63) & 1 != 0;
    let rule = filter.rule == CaptureFilter::EVERY_RULE || filter.rule == outcome.rule();
    reason && rule
}

/// True if a capture has no condition on the source.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub const fn takes_every_source(filter: &CaptureFilter) -> bool {
    filter.level == CaptureFilter::EVERY_SOURCE && filter.mask[0] | filter.mask[1] == 0
}

/// The level of a packet by its source; `None` if the capture does not ask for it.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn chosen(filter: &CaptureFilter, source: &Source) -> Option<Level> {
    let level = if filter.level == CaptureFilter::EVERY_SOURCE {
        Level::ONLY
    } else {
        let hash = hash_of(source, filter.seed);
        // Most packets of an observation end here.
        if hash > u64::MAX >> (filter.level & 63) {
            return None;
        }
        let level = level_of_hash(hash);
        Level { level, above: level.wrapping_sub(filter.level) & 63 }
    };
    let (high, low) = source.trie_words();
    let other =
        (high & filter.mask[0] ^ filter.source[0]) | (low & filter.mask[1] ^ filter.source[1]);
    if other != 0 { None } else { Some(level) }
}

/// Charges a record of a level to this CPU's budget. False if the budget is used up; the record is
/// then counted.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn admit(filter: &CaptureFilter, budget: &mut EventBudget, level: Level, now: Ticks) -> bool {
    let rate = EventRate { cost: filter.cost, credit: filter.credit };
    let kept = level.kept_of_credit(filter.credit);
    let before = Ticks::new(now.get().saturating_sub(kept));
    !EventRate::is_used_up(budget, before) && rate.admit(budget, now)
}

/// The IP version of a source: 4 or 6.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub const fn version(source: &Source) -> u8 {
    match source {
        Source::V4(_) => 4,
        Source::V6(_) => 6,
    }
}

#[cfg(test)]
mod tests {
    use limiter_common::verdict::Reason;
    use limiter_common::wire::RULE_NONE;

    use super::*;
    use crate::outcome::Outcome;

    const FILTER: CaptureFilter = CaptureFilter {
        reasons: 1 << Reason::OverLimit as u32,
        cost: 100,
        credit: 800,
        level: 0,
        ..CaptureFilter::EVERYTHING
    };

    fn address(number: u32) -> Source {
        Source::V4(number.to_be_bytes())
    }

    #[test]
    fn a_capture_asks_for_reasons_and_a_rule() {
        let dropped = Outcome::new(Reason::OverLimit, 3).pack();
        assert!(asks_for(&FILTER, dropped));
        assert!(!asks_for(&FILTER, Outcome::new(Reason::Conforming, 3).pack()));
        assert!(asks_for(&CaptureFilter { rule: 3, ..FILTER }, dropped));
        assert!(!asks_for(&CaptureFilter { rule: RULE_NONE, ..FILTER }, dropped));
    }

    #[test]
    fn a_prefix_has_its_sources_and_no_others() {
        let (high, low) = Source::V4([10, 1, 0, 0]).trie_words();
        let mask = u64::from_ne_bytes([255, 255, 255, 255, 255, 255, 0, 0]);
        let filter = CaptureFilter {
            source: [high, low],
            mask: [u64::MAX, mask],
            level: CaptureFilter::EVERY_SOURCE,
            ..FILTER
        };
        assert_eq!(chosen(&filter, &Source::V4([10, 1, 200, 3])), Some(Level::ONLY));
        assert_eq!(chosen(&filter, &Source::V4([10, 2, 0, 0])), None);
        assert_eq!(chosen(&filter, &Source::V6([0; 8])), None);
        assert!(!takes_every_source(&filter));
    }

    /// Each level has half as many sources as the one below it, and another secret chooses others.
    #[test]
    fn levels_are_halves() {
        let count = |seed: u64, level: u32| {
            (0..1 << 16).filter(|at| level_of(&address(*at), seed) >= level).count()
        };
        for level in 0..6 {
            let expected = (1_usize << 16) >> level;
            let found = count(99, level);
            assert!(found.abs_diff(expected) < (expected >> 3) + 1, "{found} of {expected}");
        }
        let both = (0..1 << 16)
            .filter(|at| level_of(&address(*at), 1) >= 4 && level_of(&address(*at), 2) >= 4);
        assert!(both.count() < 600, "two secrets choose the same");
    }

    /// The budget ends first for the lowest level, while the one above still has its share.
    #[test]
    fn low_levels_are_missed_first() {
        let mut budget = EventBudget::default();
        let now = Ticks::new(1 << 20);
        let mut sent = |above: u32| {
            let level = Level { level: above, above };
            (0..50).filter(|_| admit(&FILTER, &mut budget, level, now)).count()
        };
        assert_eq!([sent(0), sent(1), sent(2), sent(Level::ALONE)], [5, 2, 1, 1]);
        assert!(Level { level: 0, above: 0 }.has_room(0, u64::from(CAPTURED_BYTES >> 1)));
        assert!(!Level { level: 0, above: 0 }.has_room(8, u64::from(CAPTURED_BYTES >> 1)));
        assert!(Level::ONLY.has_room(8, u64::from(CAPTURED_BYTES) - 8));
    }

    #[test]
    fn a_level_crosses_a_register() {
        use crate::register::Register as _;
        for level in [None, Some(Level::ONLY), Some(Level { level: 0, above: 0 })] {
            assert_eq!(Option::<Level>::of_register(level.to_register()), level);
        }
    }
}
