//! A bucket that is followed over the window.

use limiter_common::time::Ticks;

use super::read::Read;

/// Findings about a bucket in one half of the window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Half {
    pub(super) sent: u32,
    /// Dropped packets among these.
    pub(super) lost: u32,
    /// Highest used share in a reading, 0 to 1.
    pub(super) seen: f32,
    /// Upper bound of the used share, including the time between readings, 0 to 1.
    pub(super) at_most: f32,
}

impl Half {
    fn and(self, other: Self) -> Self {
        Self {
            sent: self.sent.saturating_add(other.sent),
            lost: self.lost.saturating_add(other.lost),
            seen: self.seen.max(other.seen),
            at_most: self.at_most.max(other.at_most),
        }
    }
}

/// State of a bucket over the window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Followed {
    last: Read,
    /// Time of the last reading.
    at: Ticks,
    /// The present half of the window, and the previous one.
    halves: [Half; 2],
}

// 16,384 of these with their numbers, in a hash table of twice that size, take 2.7 MB.
const _: () = assert!(size_of::<Followed>() <= 72);

impl Followed {
    /// Begins with a bucket that is read for the first time. `is_new` says that it was made after
    /// the previous round: then all of its packets count, otherwise none.
    pub(super) fn new(read: Read, at: Ticks, is_new: bool) -> Self {
        let half = Half { seen: read.near, at_most: read.near, ..Half::default() };
        let begun = Read { passed: 0, dropped: 0, near: 0.0, ..read };
        let mut followed =
            Self { last: if is_new { begun } else { read }, at, halves: [half, Half::default()] };
        followed.read(read, at, at);
        followed
    }

    /// Takes another reading. If the limits changed, everything starts again: from the last reading
    /// if the new limits were already in force then, which is since `since`; otherwise from this
    /// reading.
    pub(super) fn read(&mut self, read: Read, at: Ticks, since: Ticks) {
        if (read.place, read.rule) != (self.last.place, self.last.rule) {
            if self.at < since {
                *self = Self::new(read, at, false);
                return;
            }
            // The used share of the new limits at that time is unknown.
            self.last = Read { near: 1.0, place: read.place, rule: read.rule, ..self.last };
            self.halves = [Half::default(); 2];
        }
        // A bucket that was evicted and made again has counted from zero.
        let before = if read.passed < self.last.passed || read.dropped < self.last.dropped {
            Read { passed: 0, dropped: 0, ..self.last }
        } else {
            self.last
        };
        let passed = read.passed - before.passed;
        let dropped = read.dropped - before.dropped;
        let few = |packets: u64| u32::try_from(packets).unwrap_or(u32::MAX);
        #[expect(clippy::cast_precision_loss, reason = "a bound of a share, which is at most 1")]
        let charged = passed as f32 * read.per_packet;
        let [half, _] = &mut self.halves;
        *half = half.and(Half {
            sent: few(passed.saturating_add(dropped)),
            lost: few(dropped),
            seen: read.near,
            // A source with a refused packet had used up the limit.
            at_most: if dropped > 0 { 1.0 } else { (before.near + charged).min(1.0) },
        });
        (self.last, self.at) = (read, at);
    }

    pub(super) const fn rule(&self) -> u32 {
        self.last.rule
    }

    /// Limits that the bucket is charged to.
    pub(super) const fn place(&self) -> u32 {
        self.last.place
    }

    pub(super) fn window(&self) -> Half {
        let [half, before] = self.halves;
        half.and(before)
    }

    /// Begins the next half; returns false for a bucket that was not read since `since` because it
    /// no longer exists.
    pub(super) fn turn(&mut self, since: Ticks) -> bool {
        let [half, before] = &mut self.halves;
        *before = *half;
        let near = self.last.near;
        *half = Half { seen: near, at_most: near, ..Half::default() };
        self.at >= since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Ticks = Ticks::from_nanos(1_000_000_000);

    fn read(passed: u64, dropped: u64, near: f32) -> Read {
        Read { place: 3, rule: 2, passed, dropped, near, per_packet: 0.125 }
    }

    fn half(sent: u32, lost: u32, seen: f32, at_most: f32) -> Half {
        Half { sent, lost, seen, at_most }
    }

    #[test]
    fn only_what_came_meanwhile_counts() {
        let mut old = Followed::new(read(100, 50, 0.25), LATER, false);
        assert_eq!(old.window(), half(0, 0, 0.25, 0.25));
        old.read(read(102, 50, 0.0), LATER, LATER);
        assert_eq!(old.window(), half(2, 0, 0.25, 0.5), "a quarter, and two packets");
        old.read(read(102, 51, 0.0), LATER, LATER);
        assert_eq!(old.window(), half(3, 1, 0.25, 1.0));
        let new = Followed::new(read(3, 0, 0.125), LATER, true);
        assert_eq!(new.window(), half(3, 0, 0.125, 0.375));
    }

    #[test]
    fn a_bucket_that_came_again_counts_from_nothing() {
        let mut followed = Followed::new(read(100, 50, 0.0), LATER, false);
        followed.read(read(2, 0, 0.25), LATER, LATER);
        assert_eq!(followed.window(), half(2, 0, 0.25, 0.25));
    }

    #[test]
    fn other_limits_begin_anew() {
        let mut followed = Followed::new(read(4, 0, 0.5), LATER, true);
        let after = LATER.plus(LATER);
        followed.read(Read { place: 4, ..read(9, 9, 0.25) }, after, after);
        assert_eq!(followed.window(), half(0, 0, 0.25, 0.25));
        // No packet came since then; the next one comes under the third limits, which were in force
        // for long.
        followed.read(Read { place: 5, ..read(12, 10, 0.5) }, after.plus(LATER), after);
        assert_eq!(followed.window(), half(4, 1, 0.5, 1.0));
    }

    #[test]
    fn the_window_is_two_halves() {
        let mut followed = Followed::new(read(4, 1, 0.5), LATER, true);
        assert!(followed.turn(LATER));
        followed.read(read(5, 1, 0.0), LATER, LATER);
        assert_eq!(followed.window(), half(6, 1, 0.5, 1.0));
        assert!(followed.turn(LATER));
        assert_eq!(followed.window(), half(1, 0, 0.5, 0.625));
        assert!(!followed.turn(LATER.plus(LATER)), "not read for long");
    }
}
