//! The system call `bpf`, for what aya does not have: batches.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use anyhow::{Context as _, Result, ensure};

/// Commands of `linux/bpf.h`.
const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP_BATCH: libc::c_int = 24;
const MAP_UPDATE_BATCH: libc::c_int = 26;

const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_LPM_TRIE: u32 = 11;

/// `BPF_F_NO_PREALLOC`, which a trie must have.
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
    element_flags: u64,
    flags: u64,
}

fn create<K, V>(kind: u32, entries: u32, flags: u32) -> Result<OwnedFd> {
    let (key, value) = (u32::try_from(size_of::<K>())?, u32::try_from(size_of::<V>())?);
    let mut create = Create { kind, key, value, entries, flags };
    // SAFETY: the attributes point at nothing.
    let map = unsafe { bpf(MAP_CREATE, &mut create) }.context("cannot make a map: run as root")?;
    // SAFETY: a successful BPF_MAP_CREATE returns a descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(map) })
}

/// A map of integers and arrays of them, to be written.
#[derive(Debug)]
pub struct Plain<K, V>(OwnedFd, PhantomData<(K, V)>);

impl<V> Plain<u32, V> {
    /// An array.
    ///
    /// # Errors
    ///
    /// Without root.
    pub fn array(entries: u32) -> Result<Self> {
        Ok(Self(create::<u32, V>(MAP_TYPE_ARRAY, entries, 0)?, PhantomData))
    }
}

impl<K, V> Plain<K, V> {
    /// A trie; its key is a length in bits and what it is of.
    ///
    /// # Errors
    ///
    /// Without root.
    pub fn trie(entries: u32) -> Result<Self> {
        Ok(Self(create::<K, V>(MAP_TYPE_LPM_TRIE, entries, NO_PREALLOC)?, PhantomData))
    }

    /// Writes many elements by one system call.
    ///
    /// # Errors
    ///
    /// When the kernel refuses, or there are not as many values as keys.
    pub fn write(&self, keys: &[K], values: &[V]) -> Result<()> {
        ensure!(keys.len() == values.len(), "keys and values are not as many");
        let mut batch = Batch {
            from: 0,
            to: 0,
            keys: keys.as_ptr() as u64,
            values: values.as_ptr() as u64,
            count: u32::try_from(keys.len())?,
            map: self.0.as_raw_fd().cast_unsigned(),
            element_flags: 0,
            flags: 0,
        };
        // SAFETY: keys and values live as long as the call, `count` of each, of the sizes that the
        // map was made with; the kernel writes `count` alone.
        unsafe { bpf(MAP_UPDATE_BATCH, &mut batch) }.context("cannot write a batch")?;
        Ok(())
    }
}

/// Entries that one system call of [`dump`] reads.
const DUMPED: usize = 16_384;

/// Reads a whole hash map in batches; says how many entries it has. `look` is shown the values of
/// each batch.
///
/// # Errors
///
/// When the kernel refuses, or keys and values have other sizes than those of the map.
pub fn dump<const KEY: usize, const VALUE: usize>(
    map: BorrowedFd<'_>,
    mut look: impl FnMut(&[[u64; VALUE]]),
) -> Result<u64> {
    let path = format!("/proc/self/fdinfo/{}", map.as_raw_fd());
    let info = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    for (name, size) in [("key_size", KEY), ("value_size", VALUE * size_of::<u64>())] {
        let line = format!("{name}:\t{size}");
        ensure!(info.lines().any(|found| found == line), "not {line}: {info}");
    }
    let (mut keys, mut values) = (vec![[0_u8; KEY]; DUMPED], vec![[0_u64; VALUE]; DUMPED]);
    // Places at which a batch begins, as the kernel counts the buckets of a hash.
    let (mut from, mut to, mut first, mut all) = (0_u32, 0_u32, true, 0);
    loop {
        let mut batch = Batch {
            from: if first { 0 } else { (&raw const from) as u64 },
            to: (&raw mut to) as u64,
            keys: keys.as_mut_ptr() as u64,
            values: values.as_mut_ptr() as u64,
            count: u32::try_from(DUMPED)?,
            map: map.as_raw_fd().cast_unsigned(),
            element_flags: 0,
            flags: 0,
        };
        // SAFETY: `from` and `to` live as long as the call, and so do keys and values, which have
        // room for `count` of the sizes that the map was just seen to have.
        let done = unsafe { bpf(MAP_LOOKUP_BATCH, &mut batch) };
        let last = match done {
            Ok(_) => false,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => true,
            Err(error) => return Err(error).context("cannot read a batch"),
        };
        all += u64::from(batch.count);
        look(values.get(..usize::try_from(batch.count)?).context("more than asked for")?);
        if last {
            return Ok(all);
        }
        (from, first) = (to, false);
    }
}

/// The system call `bpf`.
///
/// # Safety
///
/// Memory that the attributes point at must be valid for the command.
unsafe fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<i32> {
    // SAFETY: the pointer and the size describe `attributes`, all of whose bytes are integers: the
    // kernel may write what a command returns there.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>())
    };
    match i32::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}
