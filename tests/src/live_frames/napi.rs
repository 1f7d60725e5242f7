//! How the other end of the cable takes live frames.

use std::collections::HashSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::Pid;

use crate::cpu;
use crate::netns::Netns;

/// How long a kernel thread may take to appear.
const WITHIN: Duration = Duration::from_secs(30);

/// Gives `interface` a NAPI, as network cards have one: a veth drops live frames without.
///
/// # Errors
///
/// Without `ethtool`.
pub fn accept(netns: &Netns, interface: &str) -> Result<()> {
    netns.run("ethtool", ["-K", interface, "gro", "on"]).map(|_| ())
}

/// Gives the NAPI of `interface` a thread of its own, on `cpu` and before the machine's other work,
/// as a card's interrupt would be. To be called when XDP programs are attached: that makes a new
/// NAPI.
///
/// # Errors
///
/// When the kernel has no threaded NAPI, or the thread cannot be distinguished from another's.
pub fn on_cpu(netns: &Netns, interface: &str, cpu: usize) -> Result<()> {
    let prefix = format!("napi/{interface}-");
    let before = threads(&prefix)?;
    let path = format!("/sys/class/net/{interface}/threaded");
    set(netns, interface)?;
    let deadline = Instant::now() + WITHIN;
    loop {
        let new: Vec<Pid> = threads(&prefix)?.difference(&before).copied().collect();
        if let [thread] = new.as_slice() {
            cpu::pin(Some(*thread), cpu)?;
            return cpu::real_time(Some(*thread), 1);
        }
        ensure!(new.is_empty(), "two runs at once: whose thread is {prefix}* cannot be reported");
        ensure!(Instant::now() < deadline, "no kernel thread {prefix}* came of {path}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// `/sys` shows the interfaces of the namespace that it was mounted in, so `ip` mounts it anew.
fn set(netns: &Netns, interface: &str) -> Result<()> {
    let write = format!("echo 1 > /sys/class/net/{interface}/threaded");
    crate::command::run("ip", ["netns", "exec", netns.name(), "sh", "-c", &write])
        .context("cannot give the interface's NAPI a thread")?;
    Ok(())
}

/// Kernel threads by the beginning of their names.
fn threads(prefix: &str) -> Result<HashSet<Pid>> {
    let mut found = HashSet::new();
    for entry in fs::read_dir("/proc").context("cannot read /proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may end meanwhile.
        let Ok(name) = fs::read_to_string(entry.path().join("comm")) else { continue };
        if let (true, Some(pid)) = (name.starts_with(prefix), Pid::from_raw(pid)) {
            found.insert(pid);
        }
    }
    Ok(found)
}
