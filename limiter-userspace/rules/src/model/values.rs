//! Values of a key that is a number: one, or a range.

/// The values that a key must have, from the lowest to the highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Values {
    low: u16,
    high: u16,
}

impl Values {
    /// A range; `None` if it ends before it begins.
    pub const fn range(low: u16, high: u16) -> Option<Self> {
        if low <= high { Some(Self { low, high }) } else { None }
    }

    /// The lowest value.
    pub const fn low(self) -> u16 {
        self.low
    }

    /// The highest value of the range, which is in it.
    pub const fn high(self) -> u16 {
        self.high
    }

    /// True if there are several values.
    pub const fn is_range(self) -> bool {
        self.low != self.high
    }

    /// True if a value is one of these.
    pub const fn has(self, value: u16) -> bool {
        self.low <= value && value <= self.high
    }

    /// True if all of the others are among these.
    pub const fn has_all(self, others: Self) -> bool {
        self.low <= others.low && others.high <= self.high
    }

    /// True if any value is among both.
    pub const fn meets(self, others: Self) -> bool {
        self.low <= others.high && others.low <= self.high
    }
}

impl From<u16> for Values {
    fn from(value: u16) -> Self {
        Self { low: value, high: value }
    }
}
