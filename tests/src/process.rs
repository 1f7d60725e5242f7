//! The memory and the processor time of a process.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// Ticks of processor time in /proc: `USER_HZ`, which no configuration changes.
const PER_SECOND: f64 = 100.0;

/// Memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// All that is resident.
    pub resident: f64,
    /// Of it what is not mapped from files.
    pub own: f64,
    /// The most that was resident at one time.
    pub peak: f64,
}

/// Memory of a process.
///
/// # Errors
///
/// When there is no such process.
pub fn memory(pid: u32) -> Result<Memory> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let field = |name: &str| -> Result<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let value = line.with_context(|| format!("{path} has no {name}"))?;
        let kib: u32 = value.trim().trim_end_matches("kB").trim().parse()?;
        Ok(f64::from(kib) * 1024.0)
    };
    Ok(Memory { resident: field("VmRSS:")?, own: field("RssAnon:")?, peak: field("VmHWM:")? })
}

/// Seconds of processor time that a process has used.
///
/// # Errors
///
/// When there is no such process.
pub fn processor(pid: u32) -> Result<f64> {
    ticks(format!("/proc/{pid}/stat"), [11, 12])
}

/// Seconds of processor time of the threads that a process has now: to the nanosecond, where
/// [`processor`] has hundredths of a second.
///
/// # Errors
///
/// When there is no such process, or the kernel does not report it.
pub fn of_threads(pid: u32) -> Result<f64> {
    let mut sum = 0.0;
    let tasks = format!("/proc/{pid}/task");
    for task in fs::read_dir(&tasks).with_context(|| format!("cannot list {tasks}"))? {
        let path = task?.path().join("schedstat");
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let nanos = text.split_whitespace().next().context("no time in it")?;
        sum += nanos.parse::<f64>()? / 1e9;
    }
    Ok(sum)
}

/// Seconds of processor time of the children of this process that have ended.
///
/// # Errors
///
/// When the system does not report it.
pub fn of_children() -> Result<f64> {
    ticks("/proc/self/stat", [13, 14])
}

/// The sum of two fields, counted from behind the name.
fn ticks(path: impl AsRef<Path>, fields: [usize; 2]) -> Result<f64> {
    let path = path.as_ref();
    let stat =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let (_, rest) = stat.rsplit_once(')').context("no name in it")?;
    let mut sum = 0;
    for field in fields {
        let value = rest.split_whitespace().nth(field).context("too few fields")?;
        sum += value.parse::<u32>()?;
    }
    Ok(f64::from(sum) / PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_uses_the_processor() {
        let pid = std::process::id();
        let memory = memory(pid).unwrap();
        assert!(memory.own > 0.0 && memory.own < memory.resident, "{memory:?}");
        assert!(memory.resident <= memory.peak, "{memory:?}");
        assert!(processor(pid).unwrap() >= 0.0 && of_children().unwrap() >= 0.0);
        assert!(of_threads(pid).unwrap() > 0.0);
    }
}
