//! A part of a map of lines in the memory of this process: read without a system call for each.

use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd as _;
use std::ptr::null_mut;

use aya::maps::MapData;
use limiter_common::line::HostLine;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Bytes of a line.
const LINE: usize = size_of::<HostLine>();

/// Some lines that follow each other. They are mapped as long as this is there: all of the map would count as memory of this
/// process.
pub(super) struct Window {
    place: *mut c_void,
    bytes: usize,
    /// Lines before the first one that was asked for: a map begins at a page.
    before: usize,
    count: usize,
}

impl Window {
    /// Maps `count` lines from `first` on. They are in the map.
    #[expect(unsafe_code, reason = "memory that the kernel gives")]
    pub(super) fn open(map: &MapData, first: u32, count: u32) -> io::Result<Self> {
        let out_of_range = || io::Error::from_raw_os_error(libc::EINVAL);
        let page = rustix::param::page_size();
        let size = |lines: u32| usize::try_from(lines).ok()?.checked_mul(LINE);
        let start = size(first).ok_or_else(out_of_range)?;
        let skip = start % page;
        let bytes = size(count).and_then(|bytes| bytes.checked_add(skip));
        let bytes = bytes.filter(|bytes| *bytes != 0).ok_or_else(out_of_range)?;
        let offset = u64::try_from(start - skip).ok().ok_or_else(out_of_range)?;
        let fd = map.fd().as_fd();
        // SAFETY: at no address that is in use; the kernel says where.
        let place =
            unsafe { mmap(null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, fd, offset) }?;
        let count = usize::try_from(count).ok().ok_or_else(out_of_range)?;
        Ok(Self { place, bytes, before: skip / LINE, count })
    }

    /// The lines.
    #[expect(unsafe_code, reason = "memory that the kernel gives")]
    pub(super) fn lines(&self) -> &[HostLine] {
        // SAFETY: so many bytes are mapped from a page on, of a map whose values are lines, until this is dropped. A
        // line is atomics alone, of the same layout, for which any bytes do; they are only loaded.
        unsafe {
            std::slice::from_raw_parts(self.place.cast::<HostLine>().add(self.before), self.count)
        }
    }
}

impl Drop for Window {
    #[expect(unsafe_code, reason = "memory that the kernel gave")]
    fn drop(&mut self) {
        // SAFETY: nobody borrows it any more.
        let done = unsafe { munmap(self.place, self.bytes) };
        if let Err(error) = done {
            tracing::debug!(%error, "memory of a map could not be given back");
        }
    }
}
