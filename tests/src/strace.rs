//! strace at a process that runs.

use std::ffi::OsStr;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// strace, which looks at every thread of a process.
pub struct Strace {
    child: Child,
    pid: u32,
}

impl Strace {
    /// Has strace look at the process `pid`, with these options; every call from now on is seen.
    ///
    /// # Errors
    ///
    /// strace does not start, or does not attach.
    pub fn attach<S: AsRef<OsStr>>(pid: u32, options: impl IntoIterator<Item = S>) -> Result<Self> {
        let child = Command::new("strace")
            .args(options)
            .args(["-p", &pid.to_string()])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("strace")?;
        let strace = Self { child, pid };
        // strace takes the threads one by one, and sees the calls of one when it has stopped once.
        // The test waits for calls when strace has taken all; before that, one could pass unseen.
        let tracer = strace.child.id();
        wait_for(|| Ok(all_traced_by(pid, tracer)? && is_done(tracer)?))?;
        Ok(strace)
    }

    /// Lets go of the process, if it still runs.
    ///
    /// # Errors
    ///
    /// strace does not let go.
    pub fn end(mut self) -> Result<()> {
        let child = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(child.context("not a process id")?, Signal::INT)?;
        self.child.wait()?;
        wait_for(|| all_traced_by(self.pid, NOBODY))
    }

    /// Waits until the process has ended.
    ///
    /// # Errors
    ///
    /// The state of strace cannot be asked for.
    pub fn wait(mut self) -> Result<()> {
        self.child.wait().map(drop).context("strace")
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        // An error means that it has ended.
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// The tracer of a thread that is not traced.
const NOBODY: u32 = 0;

/// True if that process traces every thread of another that has not ended.
fn all_traced_by(pid: u32, tracer: u32) -> Result<bool> {
    let tracer = tracer.to_string();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let Ok(status) = fs::read_to_string(thread?.path().join("status")) else { continue };
        let ended = field(&status, "State").is_none_or(|state| state.starts_with(['Z', 'X']));
        if !ended && field(&status, "TracerPid") != Some(&tracer) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// True if a process waits for something, or has ended.
fn is_done(pid: u32) -> Result<bool> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    Ok(field(&status, "State").is_some_and(|state| state.starts_with(['S', 'Z'])))
}

fn field<'status>(status: &'status str, name: &str) -> Option<&'status str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"))
}

fn wait_for(good: impl Fn() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !good()? {
        ensure!(Instant::now() < deadline, "strace does not attach, or does not let go");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
