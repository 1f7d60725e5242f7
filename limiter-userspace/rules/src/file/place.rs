//! Places in the text of a file.

use std::fmt;

/// A place in a file; both count from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Line of the file, from 1.
    pub line: u64,
    /// Column of the line, from 1.
    pub column: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

impl Place {
    /// Begin of a file.
    pub const BEGIN: Self = Self { line: 1, column: 1 };

    /// The place of a byte; what comes before it counts in bytes on its own line.
    pub fn of_offset(bytes: &[u8], offset: usize) -> Self {
        let before = bytes.get(..offset).unwrap_or(bytes);
        let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines = before.split(|byte| *byte == b'\n').count() - 1;
        let text = String::from_utf8_lossy(before.get(start..).unwrap_or_default());
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX).saturating_add(1);
        Self { line: count(lines), column: count(text.chars().count()) }
    }
}
