//! Counters of bounded loops.

use core::hint::black_box;

/// Attempts of one charge before the packet is dropped as
/// [`limiter_common::verdict::Reason::Contended`]. An attempt fails only if another CPU passed a
/// packet of the same source in between.
pub const MAX_TRIES: u64 = 16;

/// Counts the rounds of a loop.
///
/// Without `CAP_PERFMON`, the verifier also follows the path on which the processor mispredicts a
/// comparison. A counter that runs down to zero, or is compared with "not equal", never ends the
/// loop there, and compilers turn other counters into such ones. The compiler does not know where
/// this counter's value comes from, so the same register is compared and incremented.
pub(crate) struct Rounds(u64);

impl Rounds {
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) const fn new() -> Self {
        Self(0)
    }

    /// The number of the next round, from 0; `None` after `most` rounds, a constant.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) fn next(&mut self, most: u64) -> Option<u32> {
        let round = black_box(self.0);
        if round >= most {
            return None;
        }
        self.0 = round.wrapping_add(1);
        Some((round & 0xffff_ffff) as u32)
    }

    /// The number of the next round, from 0; `None` after `most` rounds, and after `bound`, a
    /// constant.
    ///
    /// Linux 6.1 does not see that a known counter exceeds an unknown number if the compiler writes
    /// the counter first: its `is_branch_taken` only looks at constants on the right. So the
    /// constant ends the loop for the verifier, and the compiler does not know that both count the
    /// same.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) fn next_within(&mut self, most: u64, bound: u64) -> Option<u32> {
        let round = self.next(bound)?;
        if black_box(u64::from(round)) >= most { None } else { Some(round) }
    }

    /// True if there is another round.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) fn more(&mut self, most: u64) -> bool {
        self.next(most).is_some()
    }
}
