//! The leases of shared limits, mapped from the kernel: read and written without a system call.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use aya::maps::{MapData, MapError};
use aya::sys::SyscallError;
use limiter_common::table::HostLease;
use limiter_common::wire::{Lease, MAX_LEASES, map};
use memmap2::{MmapOptions, MmapRaw};

use super::{DatapathError, PinDir};
use crate::cluster::Leases;
use crate::cluster::key::Words;
use crate::cluster::leases::{Counts, counts, grant, monotonic};

/// All leases. They are mapped as long as this is there, whatever becomes of the data path.
pub struct LeaseMemory(MmapRaw);

impl LeaseMemory {
    /// Maps the pinned ones.
    pub(super) fn open(pins: &PinDir) -> Result<Arc<Self>, DatapathError> {
        let failed = DatapathError::map(map::LEASES);
        let data = MapData::from_pin(pins.map(map::LEASES)).map_err(failed)?;
        let mapped = |io_error: io::Error| DatapathError::Map {
            map: map::LEASES,
            source: MapError::SyscallError(SyscallError { call: "mmap", io_error }),
        };
        // The map has at least as many: its size is in the object.
        let bytes = MAX_LEASES as usize * size_of::<HostLease>();
        let fd = data.fd().as_fd();
        let memory = MmapOptions::new().len(bytes).map_raw(&fd).map_err(mapped)?;
        Ok(Arc::new(Self(memory)))
    }

    /// The leases, by [`limiter_common::wire::lease_of_budget`].
    #[expect(unsafe_code, reason = "memory that the kernel shares")]
    pub fn all(&self) -> &[HostLease] {
        // SAFETY: so many bytes are mapped, from the beginning of a page on, until this is dropped,
        // of a map whose values are leases. A lease is atomics alone, of the same layout, for which
        // any bytes do.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), MAX_LEASES as usize) }
    }

    /// A lease as it stands.
    pub(super) fn read(&self, index: u32) -> Option<Lease> {
        self.get(index).map(HostLease::read)
    }

    fn get(&self, index: u32) -> Option<&HostLease> {
        self.all().get(usize::try_from(index).ok()?)
    }
}

impl Leases for Arc<LeaseMemory> {
    fn now(&self) -> u64 {
        monotonic()
    }

    fn seen(&self, lease: u32) -> Counts {
        self.get(lease).map_or_else(Counts::default, counts)
    }

    fn write(&mut self, lease: u32, words: Words) {
        if let Some(lease) = self.get(lease) {
            grant(lease, words);
        }
    }
}

impl std::fmt::Debug for LeaseMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaseMemory").finish_non_exhaustive()
    }
}
