//! The time that a virtual machine's host gave to others while it wanted to run.

use std::fs;

use anyhow::{Context as _, Result};

/// Counts of the kernel at the beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steal {
    stolen: u64,
    all: u64,
}

impl Steal {
    pub(super) fn begin() -> Result<Self> {
        let stat = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        Self::parse(&stat).context("/proc/stat has no line of all CPUs")
    }

    /// Share of the time since then.
    #[expect(clippy::cast_precision_loss, reason = "ticks are far under 2^52")]
    pub(super) fn end(self) -> Result<f64> {
        let now = Self::begin()?;
        let all = now.all.saturating_sub(self.all).max(1);
        Ok(now.stolen.saturating_sub(self.stolen) as f64 / all as f64)
    }

    /// user, nice, system, idle, iowait, irq, softirq, steal; what follows is in these.
    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Option<Vec<u64>> =
            line.split_whitespace().take(8).map(|tick| tick.parse().ok()).collect();
        let ticks = ticks?;
        Some(Self { stolen: *ticks.get(7)?, all: ticks.iter().sum() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_are_not_counted_twice() {
        let read = Steal::parse("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1\n").expect("all eight");
        assert_eq!((read.stolen, read.all), (8, 36));
        assert!(Steal::parse("cpu  1 2 3\n").is_none());
    }
}
