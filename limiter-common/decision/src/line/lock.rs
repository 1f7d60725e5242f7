//! The lock of a line.

use super::{Head, Line};
use crate::cell::Cell as _;
use crate::rounds::Rounds;

/// The state of [`Head::Lock`] while nobody makes an entry.
const FREE: u64 = 0;

/// The state of [`Head::Lock`] while somebody makes an entry.
pub(super) const HELD: u64 = 1;

/// Takes the lock of a line, in a bounded number of attempts.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn take_lock<L: Line>(line: &L) -> bool {
    let mut tries = Rounds::new();
    while tries.more(L::LOCK_TRIES) {
        if line.head(Head::Lock).compare_exchange(FREE, HELD) {
            return true;
        }
    }
    false
}

#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn unlock(line: &impl Line) {
    line.head(Head::Lock).compare_exchange(HELD, FREE);
}
