//! How long large rule sets take, from the command line to active, beside the raw map updates in the same run.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::raw_update;
use crate::limiter::Limiter;
use crate::testbed::Testbed;

/// Each is measured so often; what is printed is the median.
const ROUNDS: usize = 5;

/// How a rule file has them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A rule for each source.
    Sources,
    /// One rule for a list of sources.
    Listed,
    /// A rule for each source, on a port.
    Keyed,
}

/// A rule file with so many limits, of `rate` a second.
fn rules(count: u32, rate: u32, kind: Kind) -> String {
    let mut text = String::from("descriptors:\n");
    if kind == Kind::Listed {
        text.push_str("  - key: remote_address\n    value:\n");
    }
    for n in 0..count {
        let [_, a, b, c] = n.to_be_bytes();
        if kind == Kind::Listed {
            let _: std::fmt::Result = writeln!(text, "      - 10.{a}.{b}.{c}");
            continue;
        }
        let limit = format!("rate_limit: {{unit: second, requests_per_unit: {rate}, burst: 5}}");
        let source = format!("key: remote_address, value: 10.{a}.{b}.{c}, {limit}");
        // A string takes everything.
        let _: std::fmt::Result = if kind == Kind::Keyed {
            writeln!(text, "  - {{key: destination_port, value: 22, descriptors: [{{{source}}}]}}")
        } else {
            writeln!(text, "  - {{{source}}}")
        };
    }
    if kind == Kind::Listed {
        let _: std::fmt::Result =
            writeln!(text, "    rate_limit: {{unit: second, requests_per_unit: {rate}, burst: 5}}");
    }
    text
}

fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<Duration> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// The resident size of a process now and at most, in KiB.
fn resident(pid: u32) -> Result<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim().to_owned()
    };
    Ok(format!("{} resident, {} at most", of("VmRSS:"), of("VmHWM:")))
}

fn measure(limiter: &Limiter, name: &str, files: [&Path; 2], report: &mut String) -> Result<()> {
    let [first, second] = files.map(|file| file.to_string_lossy().into_owned());
    let mut times: [Vec<Duration>; 4] = Default::default();
    for _ in 0..ROUNDS {
        // The second finds the first in force: every limit is another.
        times[0].push(timed(|| limiter.ok(["apply", &first]))?);
        times[1].push(timed(|| limiter.cli(["diff", &second]))?);
        times[2].push(timed(|| limiter.ok(["list"]))?);
        times[3].push(timed(|| limiter.ok(["export"]))?);
        limiter.ok(["apply", &second])?;
    }
    for (what, times) in ["apply", "diff", "list", "export"].iter().zip(times) {
        writeln!(report, "{name:12} {what:7} {:6.0} ms", median(times).as_secs_f64() * 1e3)?;
    }
    Ok(())
}

/// Measures with `count` rules.
///
/// # Errors
///
/// When something of it fails.
pub fn report(count: u32) -> Result<String> {
    let testbed = Testbed::create("bench")?;
    let mut limiter = testbed.limiter("descriptors: []\n")?;
    limiter.options(["--max-rules", "262144"]).start()?;
    let mut report = String::new();
    let raw: Result<Vec<_>> = (0..ROUNDS).map(|_| raw_update::measure(count)).collect();
    let raw = median(raw?).as_secs_f64() * 1e3;
    writeln!(report, "{count} limits, medians of {ROUNDS}")?;
    writeln!(report, "raw batched update   {raw:6.0} ms")?;
    for (name, kind) in
        [("a list", Kind::Listed), ("source rules", Kind::Sources), ("keyed rules", Kind::Keyed)]
    {
        let first = testbed.dir.write("first.yaml", rules(count, 5, kind))?;
        let second = testbed.dir.write("second.yaml", rules(count, 7, kind))?;
        measure(&limiter, name, [&first, &second], &mut report)?;
    }
    let pid = limiter.pid().context("the daemon does not run")?;
    writeln!(report, "daemon       {}", resident(pid)?)?;
    limiter.close()?;
    testbed.close()?;
    Ok(report)
}
