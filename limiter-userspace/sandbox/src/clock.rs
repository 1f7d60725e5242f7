//! The clock that the kernel's `bpf_ktime_get_ns` reads, and sleeping by it.

use rustix::io::Errno;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    // The monotonic clock counts from boot: neither field is negative.
    time.tv_sec.unsigned_abs() * NANOS_PER_SECOND + time.tv_nsec.unsigned_abs()
}

/// Sleeps until `CLOCK_MONOTONIC` shows `nanos`; a signal may end the sleep early.
pub fn sleep_until(nanos: u64) {
    let time = Timespec {
        tv_sec: i64::try_from(nanos / NANOS_PER_SECOND).unwrap_or(i64::MAX),
        tv_nsec: (nanos % NANOS_PER_SECOND).cast_signed(),
    };
    match clock_nanosleep_absolute(ClockId::Monotonic, &time) {
        Ok(()) | Err(Errno::INTR) => {}
        // The only possible error is an invalid time; the caller looks at the clock again anyway.
        Err(_) => std::thread::yield_now(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_at_least_as_long_as_asked() {
        let end = now() + 2_000_000;
        sleep_until(end);
        assert!(now() >= end);
    }
}
