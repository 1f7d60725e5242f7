//! Headers that are not in the linear part of a frame but in a fragment. veth never makes such
//! frames; some drivers do, and a test run can.

use anyhow::{Context as _, Result, ensure};
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_tests::frames;
use limiter_tests::program::Program;
use limiter_tests::root::require_root;

const ONE_AN_HOUR: &str = "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 1, burst: 1}}\n";

/// The kernel asks for the Ethernet header at least.
const SHORTEST: usize = 14;

/// Every row, cut behind every byte of its headers: the reason, the bytes and the bucket are those
/// of the frame in one piece.
#[test]
fn headers_in_a_fragment_are_read() -> Result<()> {
    require_root();
    let mut program = Program::load(256, 16)?;
    program.apply_file(ONE_AN_HOUR)?;
    let mut hours = (1..).map(|hour| Ticks::from_nanos(hour * 3_600_000_000_000));
    let mut runs = 0;
    for row in frames::table() {
        for linear in SHORTEST..row.frame.len().min(64) {
            program.set_time(hours.next().context("no more hours")?)?;
            let passed = |source: Source| -> Result<u64> {
                Ok(program.bucket(source)?.map_or(0, |bucket| bucket.passed))
            };
            let before = row.expected.ok().map(passed).transpose()?;
            let reason = program.judge_split(&row.frame, linear)?;
            let expected =
                row.expected.err().unwrap_or(limiter_common::verdict::Reason::Conforming);
            let what = format!("{}: {}, cut at {linear}", row.section, row.what);
            ensure!(reason == expected, "{what}: {reason:?}");
            if let (Ok(source), Some(before)) = (row.expected, before) {
                ensure!(passed(source)? == before + 1, "{what}: not charged to {source:?}");
            }
            runs += 1;
        }
    }
    ensure!(runs > 1_000, "only {runs} runs");
    Ok(())
}
