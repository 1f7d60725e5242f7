//! Sources of an observation, of which a share is kept where they are too many.

use std::collections::HashMap;

use limiter_common::source::Source;
use limiter_common::wire::LEVELS;

use crate::packets::blocks::Reported;

/// Most sources that are distinguished: as many as `tune` does.
const MAX_SOURCES: usize = 7 << 18;
#[cfg(feature = "replay")]
const _: () = assert!(MAX_SOURCES == limiter_replay::tune::MAX_SOURCES);

/// Packets by source, and the level of each. Beyond [`MAX_SOURCES`] sources, half are left out, and
/// half again: those of the lowest levels.
#[derive(Debug)]
pub(crate) struct Seen {
    of: HashMap<Source, (u32, u64)>,
    /// Lowest level that is kept.
    lowest: u32,
    /// Sources that are no longer kept, as far as they were distinguished, and all of their
    /// packets.
    left_out: (u64, u64),
    /// [`MAX_SOURCES`], except in tests.
    room: usize,
}

impl Default for Seen {
    fn default() -> Self {
        Self { of: HashMap::new(), lowest: 0, left_out: (0, 0), room: MAX_SOURCES }
    }
}

impl Seen {
    /// Notes a packet; false if its source is not kept.
    pub(crate) fn note(&mut self, reported: &Reported) -> bool {
        if reported.level < self.lowest {
            self.left_out.1 += 1;
            return false;
        }
        self.of.entry(reported.source).or_insert((reported.level, 0)).1 += 1;
        while self.of.len() > self.room && self.lowest < LEVELS {
            self.lowest += 1;
            let (lowest, left_out) = (self.lowest, &mut self.left_out);
            self.of.retain(|_, (level, packets)| {
                let stays = *level >= lowest;
                if !stays {
                    *left_out = (left_out.0 + 1, left_out.1 + *packets);
                }
                stays
            });
        }
        reported.level >= self.lowest
    }

    /// Lowest level that is kept.
    pub(crate) const fn lowest(&self) -> u32 {
        self.lowest
    }

    /// Sources that are no longer kept, as far as they were distinguished, and all of their
    /// packets.
    pub(crate) const fn left_out(&self) -> (u64, u64) {
        self.left_out
    }

    /// True for a source that is kept and of this level or a higher one.
    #[cfg(any(test, feature = "replay"))]
    pub(crate) fn has(&self, source: &Source, level: u32) -> bool {
        self.of.get(source).is_some_and(|(of, _)| *of >= level)
    }

    /// Kept sources of some levels, and their packets.
    pub(crate) fn of(&self, which: impl Fn(u32) -> bool) -> (u64, u64) {
        let mut sum = (0, 0);
        for (level, packets) in self.of.values() {
            if which(*level) {
                sum = (sum.0 + 1, sum.1 + packets);
            }
        }
        sum
    }

    /// Sources of levels below one, including those that are no longer kept.
    #[cfg(any(test, feature = "replay"))]
    pub(crate) fn below(&self, level: u32) -> u64 {
        self.of(|of| of < level).0 + self.left_out.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of more sources than there is room for, those of a level and above stay, whole.
    #[test]
    fn many_sources_are_halved_and_those_that_stay_are_whole() {
        let mut seen = Seen { room: 40, ..Seen::default() };
        let reported = |number: u32| Reported {
            source: Source::V4(number.to_be_bytes()),
            // As a hash chooses them: half of all in level 0, a quarter in level 1.
            level: (number + 1).trailing_zeros(),
            nanos: 0,
            bytes: 60,
        };
        for _ in 0..3 {
            for number in 0..200 {
                seen.note(&reported(number));
            }
        }
        assert_eq!(seen.lowest(), 3);
        let level = |number: u32| reported(number).level;
        for number in 0..200 {
            assert_eq!(seen.has(&reported(number).source, 3), level(number) >= 3, "{number}");
        }
        let whole = seen.of(|level| level >= 3);
        assert_eq!(whole, (25, 75), "three packets each");
        assert_eq!(whole.1 + seen.left_out().1, 600, "no packet is in neither");
        assert!(seen.below(3) >= 41, "{}", seen.below(3));
    }
}
