//! The lines of a world whose sources are in a hash map: there are none.

use super::{Entry, Head, Line};
use crate::cell::Cell;

/// A line that there is not.
#[derive(Clone, Copy, Debug)]
pub enum NoLine {}

impl Cell for NoLine {
    fn load(&self) -> u64 {
        match *self {}
    }

    fn compare_exchange(&self, _current: u64, _new: u64) -> bool {
        match *self {}
    }
}

impl Entry for NoLine {
    fn name(&self) -> impl Cell {
        *self
    }

    fn word(&self) -> impl Cell {
        *self
    }

    fn resolved(&self) -> impl Cell {
        *self
    }

    fn counts(&self) -> u64 {
        match *self {}
    }

    fn begin_counts(&self, _passed: u64, _dropped: u64) {
        match *self {}
    }

    fn count_passed(&self, _packets: u64) {
        match *self {}
    }

    fn count_dropped(&self, _packets: u64) {
        match *self {}
    }
}

impl Line for NoLine {
    type Entry = Self;

    fn head(&self, _word: Head) -> impl Cell {
        *self
    }

    fn entry(&self, _way: u32) -> Option<Self> {
        match *self {}
    }
}

#[cfg(target_arch = "bpf")]
impl crate::register::Numbered for NoLine {
    fn number(&self) -> u64 {
        match *self {}
    }
}
