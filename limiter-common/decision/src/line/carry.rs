//! Carries the upper bits of an entry's counts to the head of its line ([`super::counts`]).

use limiter_common::bucket_key::BucketKey;

use super::counts::{HALF, MASK, is_due, shift};
use super::line_slot::{LineSlot, line_slot};
use super::lock::unlock;
use super::{Entry, Head, Line, take_lock};
use crate::call::call;
use crate::cell::Cell as _;
use crate::maps::Maps;

/// Clears the carried counts of a way that is given to another source. The caller holds the lock.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn begin(line: &impl Line, way: u32) {
    change(line, Head::Passed, way, |_| 0);
    change(line, Head::Dropped, way, |_| 0);
}

/// Carries the counts of a source if necessary.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn carry<W: Maps>(maps: &W, bucket_key: &BucketKey) {
    let (Some(LineSlot { line, way }), Some(name)) =
        (call!(line_slot(maps; bucket_key)), bucket_key.name())
    else {
        return;
    };
    let Some(line) = maps.line(bucket_key.kind(), line) else {
        return;
    };
    if !call!(take_lock(; &line)) {
        return;
    }
    if let Some(entry) = line.entry(way)
        && entry.name().load() == name
    {
        let counts = entry.counts();
        // Adding one more half modulo 2^32 subtracts one.
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

/// Changes the bits of a way. Nobody else does, because the caller holds the lock.
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
