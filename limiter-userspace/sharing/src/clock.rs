//! The kernel's clock, by which the program in the kernel judges. In a time namespace the clock of
//! this process is another one.

use std::fs;
use std::io;
use std::sync::OnceLock;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds that `CLOCK_MONOTONIC` is ahead here of the kernel's own clock: 0 outside of time
/// namespaces.
///
/// # Errors
///
/// That of reading it: times that the kernel compares may be off then.
pub fn ahead() -> io::Result<i64> {
    // A process never changes its time namespace, but for one that asks for it.
    static AHEAD: OnceLock<i64> = OnceLock::new();
    if let Some(ahead) = AHEAD.get() {
        return Ok(*ahead);
    }
    let ahead = read()?;
    Ok(*AHEAD.get_or_init(|| ahead))
}

/// Nanoseconds of the kernel's own `CLOCK_MONOTONIC`, which is `bpf_ktime_get_ns`.
pub fn kernel_nanos() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let nanos = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    // The start says it if the offset cannot be read.
    let ahead = i128::from(ahead().unwrap_or(0));
    u64::try_from(nanos - ahead).unwrap_or(0)
}

fn read() -> io::Result<i64> {
    match fs::read_to_string("/proc/self/timens_offsets") {
        Ok(text) => parse(&text).ok_or_else(|| io::Error::other("it has no monotonic clock")),
        // A kernel without time namespaces.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

/// The offset of the monotonic clock: a line of its name, seconds and nanoseconds.
fn parse(text: &str) -> Option<i64> {
    let mut lines = text.lines().map(str::split_whitespace);
    let mut line = lines.find_map(|mut words| {
        // Its number, in older kernels.
        matches!(words.next()?, "monotonic" | "1").then_some(words)
    })?;
    let seconds: i64 = line.next()?.parse().ok()?;
    let nanos: i64 = line.next()?.parse().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_read_in_both_directions() {
        let text = |seconds: &str| format!("monotonic  {seconds}   5\nboottime   7   0\n");
        assert_eq!(parse(&text("1000000")), Some(1_000_000_000_000_005));
        assert_eq!(parse(&text("-1000")), Some(-999_999_999_995));
        assert_eq!(parse("1 0 0\n7 9 9\n"), Some(0));
        assert_eq!(parse("boottime 7 0\n"), None);
        assert_eq!(parse(""), None);
    }
}
