//! Packets that a capture missed.

use limiter_common::wire::{CaptureBudget, LEVELS};

/// Packets that should have been reported but were not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Missed {
    /// Packets over the budget of a CPU.
    pub(super) over_budget: u64,
    /// Packets that found no room in the ring, or were unreadable.
    pub(super) lost: u64,
    /// Both together, by level of the source.
    pub(super) by_level: [u64; LEVELS as usize],
}

impl Missed {
    pub(super) fn between(before: &CaptureBudget, after: &CaptureBudget) -> Self {
        let mut by_level = after.missed;
        for (level, before) in by_level.iter_mut().zip(before.missed) {
            *level = level.wrapping_sub(before);
        }
        Self {
            over_budget: after.reported.over_budget.wrapping_sub(before.reported.over_budget),
            lost: after.reported.lost.wrapping_sub(before.reported.lost),
            by_level,
        }
    }
}
