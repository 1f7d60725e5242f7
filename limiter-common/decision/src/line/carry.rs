//! The upper bits of the counts of an entry.
//!
//! An entry has 32 bits for each of both counts. When three quarters of them are used, two are
//! carried to the head of the line, under the lock: once in 2^31 packets. The head has nine bits
//! for each way and count. So counts are modulo 2^40: twelve million packets a second for a day.
//! The quarter that stays is for packets that are taken back.

use limiter_common::owner::Owner;

use super::lock::unlock;
use super::seat::{Seat, seat};
use super::{Entry, Head, Line, take_lock};
use crate::cell::Cell as _;
use crate::step::step;
use crate::world::World;

/// Packets that are carried at once.
const HALF: u64 = 1 << 31;

/// Bits of what was carried, of each way.
const BITS: u32 = 9;

const MASK: u64 = (1 << BITS) - 1;

/// True if a count of an entry is to be carried.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) const fn is_due(counts: u64) -> bool {
    // The two highest bits of either.
    counts & counts << 1 & (HALF << 32 | HALF) != 0
}

/// Position of the bits of a way.
#[cfg_attr(target_arch = "bpf", inline(always))]
const fn shift(way: u32) -> u32 {
    way.wrapping_sub(1).wrapping_mul(BITS) & 63
}

/// Packets that were carried, of a way.
#[cfg(not(target_arch = "bpf"))]
pub(super) const fn carried(word: u64, way: u32) -> u64 {
    (word >> shift(way) & MASK) * HALF
}

/// Packets of both counts of [`Entry::counts`].
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) const fn packets(counts: u64) -> u64 {
    (counts >> 32).wrapping_add(counts & 0xffff_ffff)
}

/// Forgets what was carried of a way that goes to another source. The caller has the lock.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn begin(line: &impl Line, way: u32) {
    change(line, Head::Passed, way, |_| 0);
    change(line, Head::Dropped, way, |_| 0);
}

/// Carries what is due of the counts of a source.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn carry<W: World>(maps: &W, owner: &Owner) {
    let (Some(Seat { line, way }), Some(name)) = (step!(seat(maps; owner)), owner.name()) else {
        return;
    };
    let Some(line) = maps.line(owner.kind(), line) else {
        return;
    };
    if !step!(take_lock(; &line)) {
        return;
    }
    if let Some(entry) = line.entry(way)
        && entry.name().load() == name
    {
        let counts = entry.counts();
        // One more half, modulo 2^32, is one less.
        if is_due(counts & 0xffff_ffff) {
            change(&line, Head::Passed, way, |halves| halves.wrapping_add(1));
            entry.count_passed(HALF);
        }
        if is_due(counts >> 32) {
            change(&line, Head::Dropped, way, |halves| halves.wrapping_add(1));
            entry.count_dropped(HALF);
        }
    }
    unlock(&line);
}

/// Changes the bits of a way. Nobody else does: the caller has the lock.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn change(line: &impl Line, head: Head, way: u32, change: impl FnOnce(u64) -> u64) {
    let cell = line.head(head);
    let word = cell.load();
    let shift = shift(way);
    let new = word & !(MASK << shift) | (change(word >> shift & MASK) & MASK) << shift;
    if new != word {
        cell.compare_exchange(word, new);
    }
}
