//! Packets that a capture missed.

use limiter_common::wire::{CaptureBudget, LEVELS};

/// Packets that were to be reported and were not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Missed {
    /// Over the budget of a CPU.
    pub(super) over_budget: u64,
    /// Without room in the ring, or unreadable.
    pub(super) lost: u64,
    /// Both, by level of the source.
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
