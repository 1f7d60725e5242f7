//! The CPU and the priority of a thread.

use std::io;

use anyhow::{Context as _, Result};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Keeps a thread on one CPU, for good; `None` is the calling one. What it starts later is born
/// there.
///
/// # Errors
///
/// When there is no such CPU or the thread has ended.
pub fn pin(thread: Option<Pid>, cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(thread, &set).with_context(|| format!("cannot keep a thread on CPU {cpu}"))
}

/// Puts a thread before the machine's other work, for good; `None` is the calling one. Of two on
/// one CPU the one with the higher `priority`, from 1, comes first. What it starts later inherits
/// it.
///
/// # Errors
///
/// Without `CAP_SYS_NICE`, or when the thread has ended.
pub fn real_time(thread: Option<Pid>, priority: i32) -> Result<()> {
    // A nice value would only count inside the session's own group (sched_autogroup).
    let param = libc::sched_param { sched_priority: priority };
    let thread = thread.map_or(0, |thread| thread.as_raw_nonzero().get());
    // SAFETY: the pointer is to a whole `sched_param`; process 0 is the calling thread.
    let code = unsafe { libc::sched_setscheduler(thread, libc::SCHED_RR, &raw const param) };
    if code == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error()).context("cannot get real-time priority: run as root")
}
