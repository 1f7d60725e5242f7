//! Uses one reading of the clock for several packets.
//!
//! A reading costs as much as a look-up, and waits for everything that the processor has begun, so
//! that cache misses cannot overlap between packets. A packet that is charged needs the time. A
//! packet whose source has long been over its limit does not: it would be dropped at any time
//! within [`SLACK`] after an old reading.
//!
//! The next [`MOST`] packets of a CPU reuse a reading, within the same kernel tick (`jiffies`: 1 to
//! 10 ms). So it is older than [`SLACK`] only if the ticks of the whole machine stand still for
//! that long while this CPU judges no more than [`MOST`] packets. Then a source that was over its
//! limit until a moment ago may lose a packet.

use limiter_common::time::Ticks;

/// The most by which the time may be later than an old reading: 20 ms, two of the longest ticks
/// that Linux can be built with.
pub const SLACK: Ticks = Ticks::from_nanos(20_000_000);

/// Packets that reuse a reading.
pub const MOST: u64 = 15;

/// The last reading of a CPU. All zeros before the first one: no kernel tick has the number 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Clock {
    /// The time of the reading, in ticks of [`Ticks`].
    time: u64,
    /// The kernel's tick in which it was read, or an earlier one.
    tick: u64,
    /// Packets that have reused it.
    used: u64,
}

impl Clock {
    /// A reading at `time`, in the kernel's `tick`.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn new(time: Ticks, tick: u64) -> Self {
        Self { time: time.get(), tick, used: 0 }
    }

    /// The time at the beginning of the next packet, in the kernel's `tick`: up to [`SLACK`] before
    /// now. `None` if the clock must be read.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn again(&mut self, tick: u64) -> Option<Ticks> {
        if self.tick != tick || self.used >= MOST {
            return None;
        }
        self.used = self.used.wrapping_add(1);
        Some(Ticks::new_within(self.time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time of a packet, of a clock that says `now`.
    fn recent(clock: &mut Clock, tick: u64, now: u64) -> u64 {
        clock
            .again(tick)
            .unwrap_or_else(|| {
                let time = Ticks::new(now);
                *clock = Clock::new(time, tick);
                time
            })
            .get()
    }

    #[test]
    fn a_reading_is_used_again_within_its_tick_and_so_often() {
        let mut clock = Clock::default();
        let mut at = |tick, now| recent(&mut clock, tick, now);
        assert_eq!(at(7, 100), 100);
        for _ in 0..MOST {
            assert_eq!(at(7, 200), 100);
        }
        assert_eq!(at(7, 200), 200);
        assert_eq!(at(7, 300), 200);
        assert_eq!(at(8, 300), 300);
        assert_eq!(at(8, 400), 300);
    }

    #[test]
    fn nothing_was_read_before_the_first_tick_of_the_kernel() {
        // `INITIAL_JIFFIES`: five minutes before 32 bits wrap.
        let first = u64::from(u32::MAX) - 300 * 1000;
        assert_eq!(recent(&mut Clock::default(), first, 5), 5);
    }
}
