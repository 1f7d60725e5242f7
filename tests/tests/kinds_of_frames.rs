//! One frame, one verdict, one reason, one bucket: the program in the kernel on every kind of
//! frame. The same frames go through the host parser.

// Also on other kernels: 120 s each.

use anyhow::Result;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_decision::packet::{self, Packet};
use limiter_tests::frames::{self, Row};
use limiter_tests::program::{Program, SOURCE_STORES};
use limiter_tests::root::require_root;

const ONE_AN_HOUR: &str = "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 1, burst: 1}}\n";

/// Every row: the reason of its first packet, the bucket that it made or charged, and that the
/// second packet over a burst of one is dropped; exempt ones pass both times.
#[test]
fn every_kind_of_frame_has_its_verdict_and_bucket() -> Result<()> {
    require_root();
    for source_store in SOURCE_STORES {
        let mut program = Program::load_in(source_store, 256, 16)?;
        program.apply_file(ONE_AN_HOUR)?;
        // One program for all of them: loading is what takes long. The buckets are full again at
        // each row.
        let hours = (1..).map(|hour| Ticks::from_nanos(hour * 3_600_000_000_000));
        for (row, time) in frames::table().into_iter().zip(hours) {
            let Row { section, what, frame, expected } = row;
            let what = format!("{section}: {what}");
            let of_host = match packet::parse(&frame.as_slice()) {
                Packet::From(source) => Ok(source),
                Packet::Exempt(reason) => Err(reason),
            };
            assert_eq!(of_host, expected, "host parser: {what}");
            program.set_time(time)?;
            let counted = |program: &Program, source| -> Result<(u64, u64)> {
                let bucket = program.bucket(source)?;
                Ok(bucket.map_or((0, 0), |bucket| (bucket.passed, bucket.dropped)))
            };
            let before = expected.map(|source| counted(&program, source));
            let judged = [program.judge(&frame)?, program.judge(&frame)?];
            match (expected, before) {
                (Ok(source), Ok(before)) => {
                    assert_eq!(judged, [Reason::Conforming, Reason::OverLimit], "{what}");
                    let (passed, dropped) = before?;
                    assert_eq!(counted(&program, source)?, (passed + 1, dropped + 1), "{what}");
                }
                (Err(reason), _) | (_, Err(reason)) => {
                    assert_eq!(judged, [reason, reason], "{what}");
                }
            }
        }
    }
    Ok(())
}
