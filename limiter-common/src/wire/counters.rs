//! Counter layouts. Each lives in a per-CPU array, so the program adds without atomics.

use bytemuck::{Pod, Zeroable};

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
}

impl RuleCounters {
    /// Adds another set, such as the next CPU's.
    pub fn merge(&mut self, other: Self) {
        self.passed.merge(other.passed);
        self.dropped.merge(other.dropped);
    }
}
