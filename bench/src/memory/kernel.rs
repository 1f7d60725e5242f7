//! The memory that the kernel has given out.

use std::fs;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

/// How long it must stay as it is, but for so many bytes: other processes come and go.
const STILL: Duration = Duration::from_millis(800);
const NOISE: u64 = 1 << 20;

/// Bytes that a source may take, in whatever it is tracked.
const PLAUSIBLE: Range<f64> = 16.0..1024.0;
const TRIES: usize = 4;

const WITHIN: Duration = Duration::from_secs(30);

/// Memory that BPF maps, tables of hashes and their entries are made of: slab that cannot be taken
/// back, memory that is contiguous to the kernel alone, and memory of each CPU. All of the
/// machine's.
pub(super) fn used() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    ["SUnreclaim:", "VmallocUsed:", "Percpu:"].into_iter().map(|name| field(&text, name)).sum()
}

/// The memory in use, once what was given back before is free: the kernel takes its time.
pub(super) fn settled() -> Result<u64> {
    let deadline = Instant::now() + WITHIN;
    let (mut last, mut since) = (used()?, Instant::now());
    while since.elapsed() < STILL {
        ensure!(Instant::now() < deadline, "the memory of the kernel does not come to rest");
        thread::sleep(Duration::from_millis(50));
        let now = used()?;
        if now.abs_diff(last) > NOISE {
            (last, since) = (now, Instant::now());
        }
    }
    used()
}

/// Measures bytes for each source, again if others took or gave back so much meanwhile that it
/// cannot be that.
pub(super) fn undisturbed<T>(
    mut measure: impl FnMut() -> Result<T>,
    bytes: impl Fn(&T) -> f64,
) -> Result<T> {
    for _ in 0..TRIES {
        let measured = measure()?;
        if PLAUSIBLE.contains(&bytes(&measured)) {
            return Ok(measured);
        }
    }
    bail!("others change the memory of the kernel too much: {TRIES} tries failed")
}

/// A field in bytes.
fn field(text: &str, name: &str) -> Result<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let value = value.with_context(|| format!("/proc/meminfo has no {name}"))?;
    let kib: u64 = value.trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_in_bytes() {
        let text = "Slab:  7 kB\nSUnreclaim:      52416 kB\n";
        assert_eq!(field(text, "SUnreclaim:").unwrap(), 52416 * 1024);
        assert!(field(text, "Percpu:").is_err());
    }
}
