//! Adding up what test binaries report.

use std::fmt;
use std::ops::AddAssign;

/// Numbers of tests by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Ran and held.
    pub(crate) passed: u64,
    /// Ran and did not hold, or could not be run although it had to be.
    pub(crate) failed: u64,
    /// Not run, and said so.
    pub(crate) skipped: u64,
}

impl Tally {
    /// How many tests were looked at.
    pub(crate) fn total(self) -> u64 {
        self.passed + self.failed + self.skipped
    }

    /// Reads the closing line of one libtest binary, as
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; ...`.
    /// `None` for every other line.
    pub(crate) fn from_line(line: &str) -> Option<Self> {
        let (_, counts) = line.trim_end().strip_prefix("test result: ")?.split_once(". ")?;
        let mut tally = Self::default();
        for part in counts.split("; ") {
            let Some((number, what)) = part.split_once(' ') else { continue };
            match what {
                "passed" => tally.passed = number.parse().ok()?,
                "failed" => tally.failed = number.parse().ok()?,
                "ignored" => tally.skipped = number.parse().ok()?,
                _ => {}
            }
        }
        Some(tally)
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// Takes a stream in pieces of any size, as it arrives, and adds up its closing lines.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    line: Vec<u8>,
    tally: Tally,
}

impl Reader {
    /// Takes the next piece.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        for &byte in piece {
            if byte == b'\n' {
                self.end_line();
            } else {
                self.line.push(byte);
            }
        }
    }

    /// The sum, after the last piece.
    pub(crate) fn finish(mut self) -> Tally {
        self.end_line();
        self.tally
    }

    fn end_line(&mut self) {
        if let Some(tally) = Tally::from_line(&String::from_utf8_lossy(&self.line)) {
            self.tally += tally;
        }
        self.line.clear();
    }
}

/// The number of tests in the output of libtest's `--list --format terse`.
pub(crate) fn listed(output: &str) -> u64 {
    output.lines().map(|line| u64::from(line.ends_with(": test"))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: &str = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.02s";
    const BAD: &str = "test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s";

    #[test]
    fn closing_lines_are_read() {
        assert_eq!(Tally::from_line(OK), Some(Tally { passed: 12, failed: 0, skipped: 1 }));
        assert_eq!(Tally::from_line(BAD), Some(Tally { passed: 4, failed: 2, skipped: 0 }));
    }

    #[test]
    fn other_lines_are_not() {
        for line in ["", "test a ... ok", "test result: ok", "say: test result: ok. 1 passed;"] {
            assert_eq!(Tally::from_line(line), None, "{line}");
        }
        assert_eq!(Tally::from_line("test result: ok. many passed; 0 failed"), None);
    }

    #[test]
    fn a_stream_is_added_up_however_it_is_cut() {
        let stream = format!("running 12 tests\n{OK}\n\nDoc-tests\n\u{fffd}\n{BAD}");
        for size in 1..40 {
            let mut reader = Reader::default();
            for piece in stream.as_bytes().chunks(size) {
                reader.push(piece);
            }
            let tally = reader.finish();
            assert_eq!(tally, Tally { passed: 16, failed: 2, skipped: 1 }, "pieces of {size}");
            assert_eq!(tally.to_string(), "16 passed, 2 failed, 1 skipped");
            assert_eq!(tally.total(), 19);
        }
    }

    #[test]
    fn a_list_is_counted() {
        assert_eq!(listed("verdict::drops: test\nbench::x: benchmark\nshow: test\n"), 2);
        assert_eq!(listed(""), 0);
    }
}
