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

    /// Adds one frame of `length` bytes if `condition` is 1, nothing if it is 0.
    #[inline(always)]
    fn add_if(&mut self, condition: u64, length: u64) {
        self.packets = self.packets.wrapping_add(condition);
        self.bytes = self.bytes.wrapping_add(length & condition.wrapping_neg());
    }

    #[inline(always)]
    fn subtract(&mut self, other: Self) {
        self.packets = self.packets.wrapping_sub(other.packets);
        self.bytes = self.bytes.wrapping_sub(other.bytes);
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
    /// Of those that passed: frames over a limit that were marked, or that went another way.
    pub marked: Tally,
}

impl RuleCounters {
    /// Adds one frame of `length` bytes that left with `reason`.
    ///
    /// All four change, by one frame or by none: choosing the one to change makes a pointer with an
    /// offset that depends on the way there, which the verifier grants only with `CAP_PERFMON`.
    #[inline(always)]
    pub fn add(&mut self, reason: Reason, length: u64) {
        let passed = u64::from(matches!(reason.verdict(), Verdict::Pass));
        self.passed.add_if(passed, length);
        self.dropped.add_if(1 - passed, length);
        self.shadowed.add_if(u64::from(matches!(reason, Reason::Shadow)), length);
        let marked = matches!(reason, Reason::Marked | Reason::Class | Reason::Redirected);
        self.marked.add_if(u64::from(marked), length);
    }

    /// Takes back what [`RuleCounters::add`] has added.
    #[inline(always)]
    pub fn take_back(&mut self, reason: Reason, length: u64) {
        let mut frame = Self::default();
        frame.add(reason, length);
        self.passed.subtract(frame.passed);
        self.dropped.subtract(frame.dropped);
        self.shadowed.subtract(frame.shadowed);
        self.marked.subtract(frame.marked);
    }

    /// Adds another set, such as the next CPU's.
    pub fn merge(&mut self, other: Self) {
        self.shadowed.merge(other.shadowed);
        self.marked.merge(other.marked);
        self.passed.merge(other.passed);
        self.dropped.merge(other.dropped);
    }
}
