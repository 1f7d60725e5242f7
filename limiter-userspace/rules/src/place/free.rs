//! Indices that are handed out.

use std::ops::Range;

/// Free indices of a range, in a circle.
#[derive(Debug)]
pub(super) struct Free {
    range: Range<u32>,
    pub(super) next: u32,
    left: u32,
    used: Flags,
}

/// Set of indices, a byte for each: there are hundreds of thousands, close to each
/// other.
#[derive(Debug, Default)]
pub(super) struct Flags(Vec<bool>);

impl Flags {
    pub(super) fn contains(&self, index: u32) -> bool {
        usize::try_from(index).ok().and_then(|index| self.0.get(index)).copied().unwrap_or(false)
    }
}

impl FromIterator<u32> for Flags {
    fn from_iter<I: IntoIterator<Item = u32>>(indices: I) -> Self {
        let mut flags = Vec::new();
        for index in indices.into_iter().filter_map(|index| usize::try_from(index).ok()) {
            if flags.len() <= index {
                flags.resize(index + 1, false);
            }
            if let Some(flag) = flags.get_mut(index) {
                *flag = true;
            }
        }
        Self(flags)
    }
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
            if !self.used.contains(index) {
                return Some(index);
            }
        }
        None
    }
}

/// Slots and rule numbers that one step hands out.
///
/// Limits and records have their slots from one circle: the limit of a record for compact keys has
/// the record's slot, and no limit of the source table has that one.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) slots: Free,
    numbers: Free,
    /// Numbers of rules that begin.
    pub(super) begun: Vec<u32>,
}

impl Places {
    pub(super) const fn new(slots: Free, numbers: Free) -> Self {
        Self { slots, numbers, begun: Vec::new() }
    }

    /// Takes a number for a rule that begins.
    pub(super) fn begin(&mut self) -> Option<u32> {
        let number = self.numbers.take()?;
        self.begun.push(number);
        Some(number)
    }
}
