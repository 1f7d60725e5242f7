//! The state that every test looks at: who gets through, what is reported, and what is on disk.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use anyhow::{Result, ensure};
use limiter_tests::generator::{Pattern, Stream};
use limiter_tests::packet::Frame;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::RECEIVER;

/// Whom the rules of [`DRAINING`] limit.
pub(crate) const SOURCE: [u8; 4] = [203, 0, 113, 77];

/// Source that is never limited.
pub(crate) const MANAGEMENT: [u8; 4] = [198, 51, 100, 9];

/// Five packets, then one in eight hours: what is drained stays drained for the test.
pub(crate) const DRAINING: &str = "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {unit: week, requests_per_unit: 20, burst: 5}}\n";

/// Ten packets of each source; how many arrive.
pub(crate) fn arrive(bed: &Testbed, sources: &[[u8; 4]]) -> Result<Vec<u64>> {
    let streams = sources
        .iter()
        .map(|source| Stream {
            frames: vec![Frame::ipv4(*source, RECEIVER.ipv4.octets()).build()],
            pattern: Pattern::Burst { frames: 10, every: Duration::from_secs(10) },
        })
        .collect();
    let (recordings, counts) = bed.measure(streams, Duration::from_millis(50))?;
    ensure!(recordings.iter().all(|recording| recording.times.len() == 10), "not all were sent");
    Ok(sources.iter().map(|source| counts.of(IpAddr::from(*source))).collect())
}

/// Of the source so many, and all of management.
pub(crate) fn ensure_in_force(bed: &Testbed, passed: u64, when: &str) -> Result<()> {
    let found = arrive(bed, &[SOURCE, MANAGEMENT])?;
    ensure!(found == [passed, 10], "{when}: {found:?} of source and management passed");
    Ok(())
}

/// Drains a bucket of five, if it is not drained yet.
pub(crate) fn drain(bed: &Testbed) -> Result<()> {
    let found = arrive(bed, &[SOURCE])?;
    ensure!(matches!(found[..], [0 | 5]), "{found:?} passed");
    Ok(())
}

/// A refusal is one line that names the remedy, and no accident.
pub(crate) fn ensure_clear(code: Option<i32>, said: &str, when: &str) -> Result<()> {
    ensure!(matches!(code, Some(1 | 2)), "{when}: exit code {code:?}: {said}");
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("limiter: ")).collect();
    ensure!(lines.len() == 1, "{when}: not one line: {said}");
    let line = lines[0];
    ensure!(line.matches(": ").count() >= 2, "{when}: no place or no remedy: {line}");
    for accident in ["panicked", "unknown error", "Unknown", "unwrap", "as a bug"] {
        ensure!(!said.contains(accident), "{when}: {accident:?} in {said}");
    }
    Ok(())
}

/// Checks the refusal of a command that ended.
pub(crate) fn ensure_clear_output(output: &Output, when: &str) -> Result<()> {
    ensure_clear(output.status.code(), &String::from_utf8_lossy(&output.stderr), when)
}

/// Content of a directory, without the lock.
pub(crate) fn contents(directory: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut contents = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // The log of events is no state.
        if name != "lock" && !name.starts_with("events-") {
            contents.insert(name, fs::read(entry.path())?);
        }
    }
    Ok(contents)
}

/// Nothing half-made is in it.
pub(crate) fn ensure_clean(directory: &Path, when: &str) -> Result<()> {
    let names: Vec<String> = contents(directory)?.into_keys().collect();
    let left = names.iter().find(|name| matches!(name.rsplit_once('.'), Some((_, "new" | "old"))));
    ensure!(left.is_none(), "{when}: {names:?} are left");
    Ok(())
}
