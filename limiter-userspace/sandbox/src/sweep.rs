//! Removes what a killed run left behind, and checks that a finished one left nothing.

use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::{bpffs, command, names, netns};

/// Removes the processes, namespaces, mounts and directories of runs whose process has ended.
/// Returns the names of what it removed.
///
/// # Errors
///
/// When one of them cannot be removed.
pub fn sweep() -> Result<Vec<String>> {
    let mut removed = Vec::new();
    for name in netns::all()?.into_iter().filter(|name| names::is_orphaned(name)) {
        let done = end_processes(&name)
            .and_then(|()| command::run("ip", ["netns", "delete", &name]).map(drop));
        if by_us(done, || Ok(!netns::all()?.contains(&name)))? {
            removed.push(name);
        }
    }
    for path in mounts(names::is_orphaned)? {
        if by_us(bpffs::remove(&path), || Ok(!mounts(names::is_orphaned)?.contains(&path)))? {
            removed.push(path.display().to_string());
        }
    }
    for path in directories(names::is_orphaned)? {
        let done = fs::remove_dir_all(&path);
        let done = done.with_context(|| format!("cannot remove {}", path.display()));
        if by_us(done, || Ok(!path.exists()))? {
            removed.push(path.display().to_string());
        }
    }
    Ok(removed)
}

/// Returns true if this run removed it. Another run that sweeps at the same time may have been
/// faster; then nothing is left either.
fn by_us(done: Result<()>, is_gone: impl FnOnce() -> Result<bool>) -> Result<bool> {
    match done {
        Ok(()) => Ok(true),
        Err(error) => {
            if is_gone()? {
                Ok(false)
            } else {
                Err(error)
            }
        }
    }
}

/// Fails when one of the namespaces, a mount under `dir` or `dir` itself still exists.
///
/// # Errors
///
/// Names what is left.
pub fn check_gone(namespaces: &[String], dir: &Path) -> Result<()> {
    let mut left: Vec<String> =
        netns::all()?.into_iter().filter(|name| namespaces.contains(name)).collect();
    let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    left.extend(mounts(|part| part == name)?.iter().map(|path| path.display().to_string()));
    if dir.exists() {
        left.push(dir.display().to_string());
    }
    ensure!(left.is_empty(), "left behind: {}", left.join(", "));
    Ok(())
}

/// Fails when anything on the machine carries the name of a process, which has ended.
///
/// # Errors
///
/// Names what is left.
pub fn check_none_of(pid: u32) -> Result<()> {
    let owned = |name: &str| names::owner(name) == Some(pid);
    let mut left: Vec<String> = netns::all()?.into_iter().filter(|name| owned(name)).collect();
    let own = mounts(owned)?.into_iter().chain(directories(owned)?);
    left.extend(own.map(|path| path.display().to_string()));
    ensure!(left.is_empty(), "left behind: {}", left.join(", "));
    Ok(())
}

/// Ends the processes inside an orphaned namespace: only that run could have put them there.
fn end_processes(name: &str) -> Result<()> {
    let pids = command::run("ip", ["netns", "pids", name])?;
    for pid in pids.split_whitespace() {
        let pid = pid.parse().ok().and_then(Pid::from_raw).context("`ip netns pids`: no number")?;
        // A process that has ended in the meantime is fine.
        let _ended = kill_process(pid, Signal::KILL);
    }
    Ok(())
}

/// Mounted BPF file systems below a directory whose name `wanted` accepts.
fn mounts(wanted: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>> {
    let table = fs::read_to_string("/proc/self/mounts").context("cannot read /proc/self/mounts")?;
    Ok(table
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            let path = Path::new(fields.nth(1)?);
            (fields.next()? == "bpf" && path.iter().any(|part| part.to_str().is_some_and(&wanted)))
                .then(|| path.to_owned())
        })
        .collect())
}

/// Directories for temporary files whose name `wanted` accepts.
fn directories(wanted: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>> {
    let parent = env::temp_dir();
    let mut found = Vec::new();
    for entry in
        fs::read_dir(&parent).with_context(|| format!("cannot read {}", parent.display()))?
    {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(&wanted) {
            found.push(entry.path());
        }
    }
    Ok(found)
}
