//! A part of a map of lines, mapped into the memory of this process: read without a system call for
//! each line.

use std::io;
use std::os::fd::AsFd as _;

use aya::maps::MapData;
use limiter_decision::line::HostLine;
use memmap2::{MmapOptions, MmapRaw};

/// Consecutive lines, mapped until this is dropped. The whole map is not mapped, because all of it
/// would count as memory of this process.
pub(crate) struct Window {
    memory: MmapRaw,
    count: usize,
}

impl Window {
    /// Maps `count` lines from `first` on. The caller ensures that they are in the map.
    pub(crate) fn open(map: &MapData, first: u32, count: u32) -> io::Result<Self> {
        let offset = u64::from(first) * size_of::<HostLine>() as u64;
        let count = usize::try_from(count).map_err(io::Error::other)?;
        let bytes = count.checked_mul(size_of::<HostLine>());
        let bytes = bytes.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        let fd = map.fd().as_fd();
        let memory = MmapOptions::new().offset(offset).len(bytes).map_raw_read_only(&fd)?;
        Ok(Self { memory, count })
    }

    #[expect(unsafe_code, reason = "memory that the kernel shares")]
    pub(crate) fn lines(&self) -> &[HostLine] {
        // SAFETY: so many lines are mapped, until this is dropped, from a multiple of their size
        // on. The map's values are lines: atomics only, of the same layout, and valid for any
        // bytes; they are only loaded.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), self.count) }
    }
}
