//! Fingerprints: which sources and keys came within the last seconds and got no entry.
//!
//! A packet under pressure leaves a *cell* of four bytes: 16 bits of a secret hash of its source or
//! key, how often it came, and when it last came. Spoofed addresses do not come back; users do. A
//! word has two cells, and is chosen by more bits of the hash. In a full word the cell that was
//! touched longer ago is replaced. So memory is fixed, and a flood of `F` first packets per second
//! over `W` words forgets a source that is silent for a second with the probability that two others
//! came to its word: `1 - (1 + F / W) * e^(-F / W)`, 9 % for a million per second.
//!
//! Packets of the same step ([`STEP_BITS`]) count once: what is sent twice at once did not come
//! back.

use limiter_common::hash::scatter;
use limiter_common::time::Ticks;
use limiter_common::wire::FINGERPRINTS;

use crate::cell::Cell as SharedWord;
use crate::maps::Maps;

/// Bits of the ticks of a step, the unit of time in cells: 16.8 ms.
pub const STEP_BITS: u32 = 29;

/// The highest count of a cell. Further visits are not counted.
pub const MOST: u32 = 63;

/// Steps for which a cell is remembered: 8.6 s. Half of the range of its time, so that a cell
/// untouched for longer usually counts as forgotten.
pub const KEPT: u64 = 512;

/// Bits of a cell: `fingerprint:16 | count:6 | step:10`, from bit 16, 10 and 0. A count of 0 is an
/// empty cell.
const STEPS: u64 = 0x3ff;
const COUNT_AT: u32 = 10;
const FINGERPRINT_AT: u32 = 16;
const CELL: u64 = 0xffff_ffff;

/// Records a packet of a source or key by its hash. Returns how often it came within the last
/// seconds, including this packet, from 1 to [`MOST`].
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn come_back<W: Maps>(maps: &W, hash: u64, now: Ticks) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "21 bits are left")]
    let index = (hash >> (64 - FINGERPRINTS.trailing_zeros())) as u32;
    let Some(word) = maps.fingerprints(index) else {
        return 1;
    };
    let before = word.load();
    let (after, count) = touch(before, hash & 0xffff, now);
    if after != before {
        // A lost exchange means another CPU's packet: this one is not counted.
        word.compare_exchange(before, after);
    }
    count
}

/// The hash by which a name is recorded ([`limiter_common::bucket_key::BucketKey::name`]).
#[cfg_attr(target_arch = "bpf", inline(always))]
pub const fn hash(name: u64, seed: u64) -> u64 {
    scatter(name ^ seed)
}

/// The word after a packet with a fingerprint, and how often that came: see [`come_back`].
#[cfg_attr(target_arch = "bpf", inline(always))]
pub const fn touch(word: u64, fingerprint: u64, now: Ticks) -> (u64, u32) {
    let step = now.get() >> STEP_BITS & STEPS;
    let (low, high) = (word & CELL, word >> 32);
    let (low_age, high_age) = (age(low, step), age(high, step));
    let is_low = low >> FINGERPRINT_AT == fingerprint;
    let is_high = high >> FINGERPRINT_AT == fingerprint;
    let take_high = !is_low && (is_high || high_age > low_age);
    let (cell, age, shift) = if take_high { (high, high_age, 32) } else { (low, low_age, 0) };
    let count = if (is_low || is_high) && age < KEPT {
        let count = cell >> COUNT_AT & MOST as u64;
        let again = cell & STEPS != step && count < MOST as u64;
        count + again as u64
    } else {
        1
    };
    let cell = fingerprint << FINGERPRINT_AT | count << COUNT_AT | step;
    #[expect(clippy::cast_possible_truncation, reason = "6 bits")]
    let count = (count & MOST as u64) as u32;
    (word & !(CELL << shift) | cell << shift, count)
}

/// Steps since a cell was touched; more than any other for an empty cell.
#[cfg_attr(target_arch = "bpf", inline(always))]
const fn age(cell: u64, step: u64) -> u64 {
    if cell >> COUNT_AT & MOST as u64 == 0 { STEPS + 1 } else { step.wrapping_sub(cell) & STEPS }
}
