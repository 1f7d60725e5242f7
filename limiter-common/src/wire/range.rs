//! Ranges of values: all values of a range count as one class, so that their packets share a
//! bucket.

use bytemuck::{Pod, Zeroable};

use super::key::{TableKey, field};

/// The most ranges of a table. A range that is cut by single values or narrower ranges counts once
/// for each piece.
pub const MAX_RANGES: usize = 16;

/// A piece of a range: values of a fact from `low` to `high` are replaced by `class`.
///
/// `low:16 | width:16 | class:16 | lane:3`, with high = low + width. A lane is a 16-bit part of the
/// third word of a [`TableKey`], or, from 4 on, of the second. Zero is the range that contains only
/// 0, which changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct Range(u64);

/// The first lane in the second word.
const SECOND: u64 = 4;

impl Range {
    /// The range of a fact, which is a bit of [`field`]; `None` for a fact without a lane, or if
    /// `high` is below `low`.
    pub fn new(fact: u32, low: u16, high: u16, class: u16) -> Option<Self> {
        let lane = lane(fact)?;
        let width = u64::from(high.checked_sub(low)?);
        Some(Self(u64::from(low) | width << 16 | u64::from(class) << 32 | lane << 48))
    }

    /// True if it changes a value.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn is_some(self) -> bool {
        self.0 != 0
    }

    /// True if it changes values of this fact.
    pub fn is_of(self, fact: u32) -> bool {
        self.is_some() && lane(fact) == Some(self.0 >> 48)
    }

    /// Lowest and highest value, if it belongs to this fact and this class.
    pub fn of_class(self, fact: u32, class: u16) -> Option<(u16, u16)> {
        let part = |shift: u32| u16::try_from(self.0 >> shift & 0xffff).unwrap_or(0);
        let [low, width, own, at] = [0, 16, 32, 48].map(part);
        let is = self.is_some() && Some(u64::from(at)) == lane(fact) && own == class;
        is.then(|| (low, low.saturating_add(width)))
    }

    /// The key with its value replaced by the class, if it is in the range.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    #[must_use]
    pub fn classed(self, key: TableKey) -> TableKey {
        let [first, second, third, rest @ ..]: [u64; 7] = bytemuck::cast(key);
        let lane = self.0 >> 48;
        let is_second = (lane >> 2 & 1).wrapping_neg();
        let shift = (lane & 3) << 4;
        let value = (second & is_second | third & !is_second) >> shift & 0xffff;
        let (low, width, class) = (self.0 & 0xffff, self.0 >> 16 & 0xffff, self.0 >> 32 & 0xffff);
        if value.wrapping_sub(low) & 0xffff > width {
            return key;
        }
        let change = (value ^ class) << shift;
        let [a, b, c, d] = rest;
        let (second, third) = (second ^ change & is_second, third ^ change & !is_second);
        bytemuck::cast([first, second, third, a, b, c, d])
    }
}

fn lane(fact: u32) -> Option<u64> {
    if fact == field::ICMP_TYPE {
        return None;
    }
    let [_, second, third] = TableKey::mask(fact);
    let lane = |word: u64, first: u64| {
        let bits = u64::from(word.trailing_zeros());
        (bits.is_multiple_of(16) && word >> bits <= 0xffff).then_some(first + (bits >> 4))
    };
    match (second, third) {
        (0, 0) => None,
        (0, third) => lane(third, 0),
        // The first half has no lanes.
        (second, _) => lane(second, SECOND).filter(|lane| *lane >= SECOND + 2),
    }
}
