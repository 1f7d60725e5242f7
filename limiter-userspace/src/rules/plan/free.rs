//! Indices that are handed out.

use std::collections::BTreeSet;
use std::ops::Range;

/// Free indices of a range, in a circle.
#[derive(Debug)]
pub(super) struct Free {
    range: Range<u32>,
    pub(super) next: u32,
    left: u32,
    used: BTreeSet<u32>,
}

impl Free {
    pub(super) fn new(range: Range<u32>, next: u32, used: impl IntoIterator<Item = u32>) -> Self {
        let left = range.end.saturating_sub(range.start);
        Self { range, next, left, used: used.into_iter().collect() }
    }

    pub(super) fn take(&mut self) -> Option<u32> {
        while self.left > 0 {
            self.left -= 1;
            let index = if self.range.contains(&self.next) { self.next } else { self.range.start };
            self.next = index + 1;
            if !self.used.contains(&index) {
                return Some(index);
            }
        }
        None
    }
}

/// Rule numbers, and which of them begin.
#[derive(Debug)]
pub(super) struct Numbers {
    free: Free,
    pub(super) begun: Vec<u32>,
}

impl Numbers {
    pub(super) fn new(range: Range<u32>, used: BTreeSet<u32>) -> Self {
        let next = range.start;
        Self { free: Free::new(range, next, used), begun: Vec::new() }
    }

    pub(super) fn begin(&mut self) -> Option<u32> {
        let number = self.free.take()?;
        self.begun.push(number);
        Some(number)
    }
}
