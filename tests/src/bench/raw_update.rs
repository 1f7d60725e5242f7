//! The least that 100,000 limits can take: two maps filled by the system call that writes many entries at once.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_BATCH: libc::c_int = 26;
const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_LPM_TRIE: u32 = 11;
const NO_PREALLOC: u32 = 1;

/// The part of `union bpf_attr` for `BPF_MAP_CREATE` up to `map_flags`.
#[repr(C)]
struct Create {
    kind: u32,
    key: u32,
    value: u32,
    entries: u32,
    flags: u32,
}

/// The part of `union bpf_attr` for batches.
#[repr(C)]
struct Batch {
    from: u64,
    to: u64,
    keys: u64,
    values: u64,
    count: u32,
    map: u32,
    elem_flags: u64,
    flags: u64,
}

/// How long it takes to write so many limits of 32 bytes into an array, and prefixes into a trie.
///
/// # Errors
///
/// Without root, or when the kernel refuses.
pub fn measure(entries: u32) -> Result<Duration> {
    let array = create(MAP_TYPE_ARRAY, 4, 32, entries, 0)?;
    let trie = create(MAP_TYPE_LPM_TRIE, 20, 4, entries, NO_PREALLOC)?;
    let slots: Vec<u32> = (0..entries).collect();
    let limits = vec![[1_u64; 4]; slots.len()];
    let prefix = |slot: &u32| {
        let mut key = [0_u8; 20];
        key[..4].copy_from_slice(&128_u32.to_ne_bytes());
        key[14..16].copy_from_slice(&[0xff, 0xff]);
        key[16..].copy_from_slice(&(0x0a00_0000 + slot).to_be_bytes());
        key
    };
    let prefixes: Vec<[u8; 20]> = slots.iter().map(prefix).collect();
    let began = Instant::now();
    update(&array, &slots, &limits)?;
    update(&trie, &prefixes, &slots)?;
    Ok(began.elapsed())
}

fn create(kind: u32, key: u32, value: u32, entries: u32, flags: u32) -> Result<OwnedFd> {
    let attributes = Create { kind, key, value, entries, flags };
    // SAFETY: the kernel reads a structure of the size that it is told.
    let fd = unsafe {
        libc::syscall(libc::SYS_bpf, MAP_CREATE, &raw const attributes, size_of::<Create>())
    };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0);
    let fd = fd.with_context(|| format!("cannot make a map: {}", io::Error::last_os_error()))?;
    // SAFETY: it was made just now, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `K` and `V` are as large as the map's keys and values.
fn update<K, V>(map: &OwnedFd, keys: &[K], values: &[V]) -> Result<()> {
    ensure!(keys.len() == values.len(), "keys and values are not as many");
    let mut batch = Batch {
        from: 0,
        to: 0,
        keys: keys.as_ptr() as u64,
        values: values.as_ptr() as u64,
        count: u32::try_from(keys.len())?,
        map: u32::try_from(map.as_raw_fd())?,
        elem_flags: 0,
        flags: 0,
    };
    // SAFETY: keys and values live as long as the call, `count` of each, of the sizes that the callers in this file
    // made the maps for; the kernel writes `count` alone.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, MAP_UPDATE_BATCH, &raw mut batch, size_of::<Batch>())
    };
    ensure!(result == 0, "cannot write a batch: {}", io::Error::last_os_error());
    Ok(())
}
