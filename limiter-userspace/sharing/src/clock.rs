//! The kernel's clock, by which the kernel program decides. In a time namespace, this process's
//! clock differs from it.

use std::fs;
use std::io;
use std::sync::OnceLock;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds by which this process's `CLOCK_MONOTONIC` is ahead of the kernel's own clock: 0
/// outside of time namespaces.
///
/// # Errors
///
/// If it cannot be read: then times that the kernel compares may be wrong.
pub fn ahead() -> io::Result<i64> {
    offsets().map(|[monotonic, _]| monotonic)
}

/// Like [`ahead`], for `CLOCK_BOOTTIME`.
///
/// # Errors
///
/// See [`ahead`].
pub fn boot_ahead() -> io::Result<i64> {
    offsets().map(|[_, boot]| boot)
}

fn offsets() -> io::Result<[i64; 2]> {
    // A process never changes its time namespace, unless it asks for that.
    static OFFSETS: OnceLock<[i64; 2]> = OnceLock::new();
    if let Some(offsets) = OFFSETS.get() {
        return Ok(*offsets);
    }
    let offsets = read()?;
    Ok(*OFFSETS.get_or_init(|| offsets))
}

/// Nanoseconds of the kernel's own `CLOCK_MONOTONIC`, which is `bpf_ktime_get_ns`.
pub fn kernel_nanos() -> u64 {
    // The start reports an unreadable offset.
    nanos(ClockId::Monotonic, ahead().unwrap_or(0))
}

/// Nanoseconds of the kernel's own `CLOCK_BOOTTIME`, which also advances while the machine sleeps.
pub fn boot_nanos() -> u64 {
    nanos(ClockId::Boottime, boot_ahead().unwrap_or(0))
}

fn nanos(clock: ClockId, ahead: i64) -> u64 {
    let time = clock_gettime(clock);
    let nanos = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    u64::try_from(nanos - i128::from(ahead)).unwrap_or(0)
}

fn read() -> io::Result<[i64; 2]> {
    match fs::read_to_string("/proc/self/timens_offsets") {
        Ok(text) => parse(&text).ok_or_else(|| io::Error::other("it has not both clocks")),
        // This kernel has no time namespaces.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok([0; 2]),
        Err(error) => Err(error),
    }
}

/// The offsets of the monotonic and the boot-time clock. Each is a line with the clock's name,
/// seconds and nanoseconds. Older kernels write the clock's number instead of its name.
fn parse(text: &str) -> Option<[i64; 2]> {
    let of = |names: [&str; 2]| {
        let mut lines = text.lines().map(str::split_whitespace);
        let mut line =
            lines.find_map(|mut words| names.contains(&words.next()?).then_some(words))?;
        let seconds: i64 = line.next()?.parse().ok()?;
        let nanos: i64 = line.next()?.parse().ok()?;
        seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
    };
    Some([of(["monotonic", "1"])?, of(["boottime", "7"])?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_read_in_both_directions() {
        let text = |seconds: &str| format!("monotonic  {seconds}   5\nboottime   7   0\n");
        assert_eq!(parse(&text("1000000")), Some([1_000_000_000_000_005, 7_000_000_000]));
        assert_eq!(parse(&text("-1000")), Some([-999_999_999_995, 7_000_000_000]));
        assert_eq!(parse("1 0 0\n7 9 9\n"), Some([0, 9_000_000_009]));
        assert_eq!(parse("boottime 7 0\n"), None);
        assert_eq!(parse(""), None);
    }
}
