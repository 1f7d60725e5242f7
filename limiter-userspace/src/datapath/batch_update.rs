//! Many entries of a map by one system call. A rule set of 100,000 rules is as many entries in several maps.

use std::ffi::c_long;
use std::mem::size_of;
use std::os::fd::{AsFd as _, AsRawFd as _};

use aya::Pod;
use aya::maps::{IterableMap, MapData, MapType};

/// The command of bpf(2).
const BPF_MAP_UPDATE_BATCH: c_long = 26;

/// Entries of one system call: one that is killed must not wait for a million.
const MOST: usize = 1 << 16;

/// What bpf(2) wants to know of a batch: `struct { ... } batch` in `union bpf_attr`.
#[derive(Debug)]
#[repr(C)]
struct Attributes {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

/// Writes entries; says how many of the first were written. With `per_key` values each, as a map with a value for
/// each CPU has them.
///
/// Those that are left are to be written one by one: a kernel or a kind of map without batches has them all left,
/// and what refuses an entry says so then.
pub(super) fn update<K: Pod, V: Pod, X, M: IterableMap<K, X>>(
    map: &M,
    keys: &[K],
    values: &[V],
    per_key: usize,
) -> usize {
    let fits =
        values.len() == keys.len().saturating_mul(per_key) && fits::<K, V>(map.map(), per_key);
    if !fits {
        return 0;
    }
    let mut done = 0;
    for (keys, values) in keys.chunks(MOST).zip(values.chunks(MOST.saturating_mul(per_key.max(1))))
    {
        let written = one(map.map(), keys, values);
        done += written;
        if written < keys.len() {
            break;
        }
    }
    done
}

/// Whether the kernel reads no more than what is there: so many bytes a key and a value.
fn fits<K: Pod, V: Pod>(map: &MapData, per_key: usize) -> bool {
    let Ok(info) = map.info() else { return false };
    let per_cpu = matches!(info.map_type(), Ok(MapType::PerCpuArray));
    let value = usize::try_from(info.value_size()).unwrap_or(usize::MAX);
    let cpus = if per_cpu { aya::util::nr_cpus().unwrap_or(0) } else { 1 };
    let stride = if per_cpu { value.next_multiple_of(8) } else { value };
    let key = usize::try_from(info.key_size()).unwrap_or(usize::MAX);
    key == size_of::<K>() && stride == size_of::<V>() && cpus == per_key && cpus > 0
}

#[expect(unsafe_code, reason = "aya has no batches")]
fn one<K: Pod, V: Pod>(map: &MapData, keys: &[K], values: &[V]) -> usize {
    let (Ok(count), Ok(map_fd)) =
        (u32::try_from(keys.len()), u32::try_from(map.fd().as_fd().as_raw_fd()))
    else {
        return 0;
    };
    let mut attributes = Attributes {
        in_batch: 0,
        out_batch: 0,
        keys: keys.as_ptr() as u64,
        values: values.as_ptr() as u64,
        count,
        map_fd,
        elem_flags: 0,
        flags: 0,
    };
    // SAFETY: the kernel reads `count` keys and values of the sizes that `fits` compared with the map's, from slices
    // that live as long as the call, and writes `count` alone, into a structure of the size that it is told.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_MAP_UPDATE_BATCH,
            &raw mut attributes,
            size_of::<Attributes>(),
        )
    };
    // Of a batch that was broken off, `count` is what was written; of one that was refused as a whole it may be
    // untouched.
    let written = attributes.count.min(count);
    if result == 0 || written < count { written as usize } else { 0 }
}
