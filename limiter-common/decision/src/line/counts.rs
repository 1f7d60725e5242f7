//! The upper bits of the counts of an entry.
//!
//! An entry has 32 bits for each of both counts. When three quarters of them are used, two are
//! carried to the head of the line, under the lock: once in 2^31 packets. The head has nine bits
//! for each way and count. So counts are modulo 2^40: twelve million packets a second for a day.
//! The quarter that stays is for packets that are taken back.

/// Packets that are carried at once.
pub(super) const HALF: u64 = 1 << 31;

/// Bits of what was carried, of each way.
const BITS: u32 = 9;

pub(super) const MASK: u64 = (1 << BITS) - 1;

/// True if a count of an entry is to be carried.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) const fn is_due(counts: u64) -> bool {
    // The two highest bits of either.
    counts & counts << 1 & (HALF << 32 | HALF) != 0
}

/// Position of the bits of a way.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) const fn shift(way: u32) -> u32 {
    way.wrapping_sub(1).wrapping_mul(BITS) & 63
}

/// Packets that were carried, of a way.
#[cfg(not(target_arch = "bpf"))]
pub(super) const fn carried(word: u64, way: u32) -> u64 {
    (word >> shift(way) & MASK) * HALF
}

/// Packets of both counts of [`super::Entry::counts`].
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) const fn packets(counts: u64) -> u64 {
    (counts >> 32).wrapping_add(counts & 0xffff_ffff)
}
