//! The upper bits of an entry's counts.
//!
//! An entry has 32 bits for each of its two counts. When three quarters are used, half of the range
//! is carried to the head of the line, under the lock: once per 2^31 packets. The head has nine
//! bits for each way and count. So counts are modulo 2^40: twelve million packets per second for a
//! day. The remaining quarter allows packets to be subtracted again.

/// Packets carried at once.
pub(super) const HALF: u64 = 1 << 31;

/// Carried bits per way.
const BITS: u32 = 9;

pub(super) const MASK: u64 = (1 << BITS) - 1;

/// True if a count of an entry must be carried.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) const fn is_due(counts: u64) -> bool {
    // The two highest bits of each count.
    counts & counts << 1 & (HALF << 32 | HALF) != 0
}

/// Position of the bits of a way.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) const fn shift(way: u32) -> u32 {
    way.wrapping_sub(1).wrapping_mul(BITS) & 63
}

#[cfg(not(target_arch = "bpf"))]
pub(super) const fn carried(word: u64, way: u32) -> u64 {
    (word >> shift(way) & MASK) * HALF
}

/// Packets in both counts of [`super::Entry::counts`].
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) const fn packets(counts: u64) -> u64 {
    (counts >> 32).wrapping_add(counts & 0xffff_ffff)
}
