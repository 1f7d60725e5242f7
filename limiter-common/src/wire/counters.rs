//! Counter layouts. Each lives in a per-CPU array, so the program adds without atomics.

use bytemuck::{Pod, Zeroable};

use crate::verdict::{Reason, Verdict};

/// Packets and bytes of one verdict reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Tally {
    /// Frames.
    pub packets: u64,
    /// Bytes of those frames, from the Ethernet header, without the checksum.
    pub bytes: u64,
}

impl Tally {
    /// Adds one frame of `length` bytes. Wraps after 2^64.
    #[inline(always)]
    pub fn add(&mut self, length: u64) {
        self.packets = self.packets.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(length);
    }

    /// Adds another tally, such as the next CPU's.
    pub fn merge(&mut self, other: Self) {
        self.packets = self.packets.wrapping_add(other.packets);
        self.bytes = self.bytes.wrapping_add(other.bytes);
    }
}

/// What one rule did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct RuleCounters {
    /// Frames that the rule let pass.
    pub passed: Tally,
    /// Frames that the rule dropped.
    pub dropped: Tally,
    /// Of those that passed: frames that a rule in shadow mode would have dropped.
    pub shadowed: Tally,
}

impl RuleCounters {
    /// Adds one frame of `length` bytes that left with `reason`.
    #[inline(always)]
    pub fn add(&mut self, reason: Reason, length: u64) {
        match reason.verdict() {
            Verdict::Pass => self.passed.add(length),
            Verdict::Drop => self.dropped.add(length),
        }
        if matches!(reason, Reason::Shadow) {
            self.shadowed.add(length);
        }
    }

    /// Adds another set, such as the next CPU's.
    pub fn merge(&mut self, other: Self) {
        self.shadowed.merge(other.shadowed);
        self.passed.merge(other.passed);
        self.dropped.merge(other.dropped);
    }
}
