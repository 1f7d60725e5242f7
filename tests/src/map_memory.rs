//! Memory that the kernel accounts BPF maps and programs for.

use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::path::Path;

use anyhow::{Context as _, Result};
use aya::maps::MapData;

/// Bytes that the kernel accounts a map or a program for.
///
/// # Errors
///
/// When the kernel does not say.
pub fn accounted(fd: BorrowedFd<'_>) -> Result<u64> {
    let path = format!("/proc/self/fdinfo/{}", fd.as_raw_fd());
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let value = text.lines().find_map(|line| line.strip_prefix("memlock:"));
    Ok(value.with_context(|| format!("{path} has no memlock"))?.trim().parse()?)
}

/// The maps that are pinned in a directory, by name, with the bytes that the kernel accounts for
/// them.
///
/// # Errors
///
/// When one of them cannot be opened, or the kernel does not say.
pub fn maps(pins: &Path) -> Result<Vec<(String, u64)>> {
    let mut maps = Vec::new();
    for entry in fs::read_dir(pins).with_context(|| format!("cannot list {}", pins.display()))? {
        let entry = entry?;
        let map = MapData::from_pin(entry.path())
            .with_context(|| format!("cannot open {}", entry.path().display()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        maps.push((name, accounted(map.fd().as_fd())?));
    }
    maps.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    Ok(maps)
}
