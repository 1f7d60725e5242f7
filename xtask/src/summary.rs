//! Adding up what test runners report.

use std::fmt;
use std::ops::AddAssign;

use serde_json::Value;

/// Numbers of tests by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Ran and held.
    pub passed: u64,
    /// Ran and did not hold, or could not be run although it had to be.
    pub failed: u64,
    /// Not run, and said so.
    pub skipped: u64,
}

impl Tally {
    /// How many tests were looked at.
    pub(crate) fn total(self) -> u64 {
        self.passed + self.failed + self.skipped
    }

    /// Reads the closing line of one libtest binary, as
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; ...`.
    /// `None` for every other line.
    pub fn from_line(line: &str) -> Option<Self> {
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

    /// Reads nextest's `JUnit` report: the attributes of its root, as
    /// `<testsuites name="nextest-run" tests="12" failures="1" errors="0" ...>`. It does not have
    /// the tests that were not run.
    pub(crate) fn from_junit(report: &str) -> Option<Self> {
        let (_, root) = report.split_once("<testsuites")?;
        let (root, _) = root.split_once('>')?;
        let number = |name: &str| -> Option<u64> {
            let (_, rest) = root.split_once(&format!(" {name}=\""))?;
            rest.split_once('"')?.0.parse().ok()
        };
        let failed = number("failures")? + number("errors")?;
        Some(Self { passed: number("tests")?.checked_sub(failed)?, failed, skipped: 0 })
    }

    /// Reads the closing line of `cargo xtask test`, as this type shows itself.
    pub fn from_closing(line: &str) -> Option<Self> {
        let mut numbers = line.trim_end().splitn(3, ", ");
        let mut number = |what: &str| -> Option<u64> {
            numbers.next()?.strip_suffix(what)?.strip_suffix(' ')?.parse().ok()
        };
        Some(Self {
            passed: number("passed")?,
            failed: number("failed")?,
            skipped: number("skipped")?,
        })
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

/// A test that was run, and how long it took.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Time {
    test: String,
    seconds: f64,
}

/// Every test of nextest's `JUnit` report, whose lines are as
/// `<testcase name="a::b" classname="limiter-tests::kernel" timestamp="..." time="1.234">`.
pub(crate) fn times(report: &str) -> Vec<Time> {
    let cases = report.split("<testcase").skip(1);
    let time = |case: &str| {
        let (case, _) = case.split_once('>')?;
        let attribute = |name: &str| -> Option<&str> {
            let (_, rest) = case.split_once(&format!(" {name}=\""))?;
            Some(rest.split_once('"')?.0)
        };
        let test = format!("{} {}", attribute("classname")?, attribute("name")?);
        Some(Time { test, seconds: attribute("time")?.parse().ok()? })
    };
    cases.filter_map(time).collect()
}

/// A line for each of the `most` tests that took longest, and one above them.
pub(crate) fn slowest(times: &[Time], most: usize) -> Vec<String> {
    let mut sorted: Vec<&Time> = times.iter().collect();
    sorted.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let lines =
        sorted.iter().take(most).map(|time| format!("{:>8.1} s  {}", time.seconds, time.test));
    let sum: f64 = times.iter().map(|time| time.seconds).sum();
    let head =
        format!("xtask: the slowest of {} tests, which took {sum:.0} s together:", times.len());
    if times.is_empty() { Vec::new() } else { [head].into_iter().chain(lines).collect() }
}

/// The number of `#[ignore]`d tests that a filter leaves, in the output of
/// `cargo nextest list --message-format json`; `None` if it is no list.
pub(crate) fn ignored(list: &str) -> Option<u64> {
    let list: Value = serde_json::from_str(list).ok()?;
    let suites = list.get("rust-suites")?.as_object()?.values();
    let cases = suites.filter_map(|suite| suite.get("testcases")?.as_object());
    let reasons = cases.flat_map(|cases| cases.values().map(|case| case.pointer(REASON)));
    Some(reasons.map(|reason| u64::from(reason.is_some_and(|reason| reason == "ignored"))).sum())
}

/// Why a test of a list is not run.
const REASON: &str = "/filter-match/reason";

/// The number of tests in the output of libtest's `--list --format terse`.
pub(crate) fn listed(output: &str) -> u64 {
    output.lines().map(|line| u64::from(line.ends_with(": test"))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_read() {
        let ok = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out";
        let bad = "test result: FAILED. 4 passed; 2 failed; 0 ignored; finished in 1.00s";
        assert_eq!(Tally::from_line(ok), Some(Tally { passed: 12, failed: 0, skipped: 1 }));
        assert_eq!(Tally::from_line(bad), Some(Tally { passed: 4, failed: 2, skipped: 0 }));
    }

    #[test]
    fn the_closing_line_is_read_as_it_is_shown() {
        let tally = Tally { passed: 1612, failed: 0, skipped: 70 };
        assert_eq!(Tally::from_closing(&tally.to_string()), Some(tally));
        for line in
            ["", "1 passed, 2 failed", "a passed, 2 failed, 3 skipped", "1 passed; 2 failed"]
        {
            assert_eq!(Tally::from_closing(line), None, "{line}");
        }
    }

    #[test]
    fn other_lines_are_not() {
        for line in ["", "test a ... ok", "test result: ok", "say: test result: ok. 1 passed;"] {
            assert_eq!(Tally::from_line(line), None, "{line}");
        }
        assert_eq!(Tally::from_line("test result: ok. many passed; 0 failed"), None);
    }

    #[test]
    fn a_report_is_read() {
        let report = "<?xml version=\"1.0\"?>\n<testsuites name=\"nextest-run\" tests=\"12\" \
                      failures=\"2\" errors=\"1\" time=\"0.9\">\n<testsuite name=\"a\" \
                      tests=\"7\"/>";
        assert_eq!(Tally::from_junit(report), Some(Tally { passed: 9, failed: 3, skipped: 0 }));
        assert_eq!(Tally::from_junit(""), None);
        assert_eq!(Tally::from_junit("<testsuites tests=\"1\">"), None);
    }

    #[test]
    fn the_slowest_come_first() {
        let report = r#"<testsuite name="x::y" tests="2">
            <testcase name="a::quick" classname="x::y" timestamp="2026" time="0.250">
            </testcase><testcase name="b::slow" classname="x::y" timestamp="2026" time="12.5"/>"#;
        let times = times(report);
        assert_eq!(times.len(), 2);
        assert_eq!(
            slowest(&times, 1),
            [
                "xtask: the slowest of 2 tests, which took 13 s together:",
                "    12.5 s  x::y b::slow",
            ]
        );
        assert!(slowest(&[], 20).is_empty());
    }

    #[test]
    fn a_list_is_counted() {
        let list = r#"{"rust-suites": {"a": {"testcases": {
            "one": {"ignored": false, "filter-match": {"status": "matches"}},
            "two": {"ignored": true, "filter-match": {"status": "mismatch", "reason": "ignored"}},
            "three": {"ignored": false, "filter-match": {"status": "mismatch", "reason": "string"}}
        }}, "b": {"testcases": {}}}}"#;
        assert_eq!(ignored(list), Some(1));
        assert_eq!(ignored("{}"), None);
        assert_eq!(listed("verdict::drops: test\nbench::x: benchmark\nshow: test\n"), 2);
        assert_eq!(listed(""), 0);
    }
}
