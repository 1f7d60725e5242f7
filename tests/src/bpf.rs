//! The system call `bpf`, as far as the tests' own small programs need it.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

/// Commands of `linux/bpf.h`.
const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP: libc::c_int = 1;
const PROG_LOAD: libc::c_int = 5;
const OBJ_PIN: libc::c_int = 6;
const PROG_TEST_RUN: libc::c_int = 10;
const MAP_LOOKUP_BATCH: libc::c_int = 24;
const MAP_UPDATE_BATCH: libc::c_int = 26;

const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_LPM_TRIE: u32 = 11;

/// `BPF_F_NO_PREALLOC`, which a trie must have.
const NO_PREALLOC: u32 = 1;

const PROG_TYPE_XDP: u32 = 6;

/// `BPF_F_TEST_XDP_LIVE_FRAMES`: what the program says is done with the frames.
const LIVE_FRAMES: u32 = 1 << 1;

/// The part of `union bpf_attr` for `BPF_MAP_CREATE` up to `map_flags`.
#[repr(C)]
struct Create {
    kind: u32,
    key: u32,
    value: u32,
    entries: u32,
    flags: u32,
}

/// The part of `union bpf_attr` for the commands on one element.
#[repr(C)]
struct Element {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The part of `union bpf_attr` for `BPF_PROG_LOAD` up to `prog_name`.
#[repr(C)]
struct Load {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

/// The part of `union bpf_attr` for `BPF_OBJ_PIN`.
#[repr(C)]
struct Pin {
    path: u64,
    fd: u32,
    flags: u32,
}

/// The part of `union bpf_attr` for `BPF_PROG_TEST_RUN`.
#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    result: u32,
    size_in: u32,
    size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_size_in: u32,
    context_size_out: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch: u32,
    padding: u32,
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
    // Where a batch begins, as the kernel counts the buckets of a hash.
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

/// An array map with one element of `N` words.
#[derive(Debug)]
pub struct Words<const N: usize>(OwnedFd);

impl<const N: usize> Words<N> {
    /// Makes one, all zero.
    ///
    /// # Errors
    ///
    /// Without root.
    pub fn create() -> Result<Self> {
        create::<u32, [u64; N]>(MAP_TYPE_ARRAY, 1, 0).map(Self)
    }

    /// The words as they are now.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn read(&self) -> Result<[u64; N]> {
        let mut words = [0; N];
        let key = 0u32;
        let mut element = Element {
            map: self.0.as_raw_fd().cast_unsigned(),
            padding: 0,
            key: (&raw const key) as u64,
            value: words.as_mut_ptr() as u64,
            flags: 0,
        };
        // SAFETY: the key and the value live until the call returns, and have the map's sizes.
        unsafe { bpf(MAP_LOOKUP, &mut element) }.context("cannot read a map")?;
        Ok(words)
    }

    /// For the instruction that loads the address of the words.
    pub(crate) fn descriptor(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// An XDP program.
#[derive(Debug)]
pub struct Xdp(OwnedFd);

impl Xdp {
    /// Loads one from its instructions. Of the name 15 bytes are kept.
    ///
    /// # Errors
    ///
    /// Without root, or when the verifier refuses.
    pub fn load(name: &str, code: &[u64]) -> Result<Self> {
        let license = c"Dual MIT/GPL";
        let mut padded = [0; 16];
        for (to, from) in padded.iter_mut().take(15).zip(name.bytes()) {
            *to = from;
        }
        let mut log = vec![0u8; 1 << 16];
        let mut load = Load {
            kind: PROG_TYPE_XDP,
            instructions: u32::try_from(code.len())?,
            code: code.as_ptr() as u64,
            license: license.as_ptr() as u64,
            log_level: 1,
            log_size: u32::try_from(log.len())?,
            log: log.as_mut_ptr() as u64,
            kernel_version: 0,
            flags: 0,
            name: padded,
        };
        // SAFETY: the instructions, the licence and the log live until the call returns.
        let program = unsafe { bpf(PROG_LOAD, &mut load) }.with_context(|| {
            let said = String::from_utf8_lossy(&log);
            format!("cannot load the program {name}: {}", said.trim_end_matches('\0').trim())
        })?;
        // SAFETY: a successful BPF_PROG_LOAD returns a descriptor that nobody else has.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(program) }))
    }

    /// Pins it at `path` on a BPF file system.
    ///
    /// # Errors
    ///
    /// When `path` is not on one.
    pub fn pin(&self, path: &Path) -> Result<()> {
        use std::os::unix::ffi::OsStrExt as _;
        let target = std::ffi::CString::new(path.as_os_str().as_bytes())?;
        let fd = self.0.as_raw_fd().cast_unsigned();
        let mut pin = Pin { path: target.as_ptr() as u64, fd, flags: 0 };
        // SAFETY: the path and the descriptor live until the call returns.
        unsafe { bpf(OBJ_PIN, &mut pin) }
            .with_context(|| format!("cannot pin {}", path.display()))?;
        Ok(())
    }

    /// Runs it on `repeat` copies of `frame`, `batch` at a time, and does what it says with them:
    /// sent is sent. The calling thread's network namespace is the one whose interfaces it knows.
    ///
    /// # Errors
    ///
    /// `EINTR` when a signal came meanwhile: what was sent until then is sent.
    pub fn run_live(&self, frame: &[u8], repeat: u32, batch: u32) -> io::Result<()> {
        let mut run = TestRun {
            program: self.0.as_raw_fd().cast_unsigned(),
            size_in: u32::try_from(frame.len()).map_err(io::Error::other)?,
            data_in: frame.as_ptr() as u64,
            repeat,
            flags: LIVE_FRAMES,
            batch,
            ..TestRun::default()
        };
        // SAFETY: the frame lives until the call returns, and no output is asked for.
        unsafe { bpf(PROG_TEST_RUN, &mut run) }.map(|_| ())
    }
}

/// The system call `bpf`.
///
/// # Safety
///
/// What the attributes point at must be valid for the command.
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
