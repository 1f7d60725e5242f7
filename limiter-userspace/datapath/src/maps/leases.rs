//! The leases of shared limits, mapped from the kernel: read and written without a system call. And
//! the maps beside them, of keys that have leases or ask for some.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, PoisonError};

use aya::maps::{HashMap, Map, MapData, MapError, RingBuf};
use aya::sys::SyscallError;
use limiter_common::wire::{
    ASK_BYTES, Ask, HostLease, KeyLeases, Lease, MAX_LEASES, TableKey, map,
};
use limiter_sharing::Leases;
use limiter_sharing::key::Words;
use limiter_sharing::leases::{Counts, counts, grant, monotonic};
use memmap2::{MmapOptions, MmapRaw};

use super::found::{Read, found};
use super::pod::Wire;
use crate::{DatapathError, PinDir};

/// All leases. They stay mapped until this is dropped, independently of the data path.
pub struct LeaseMemory {
    leases: MmapRaw,
    keys: Mutex<KeyMaps>,
}

/// Keys that have leases, and requests for leases.
struct KeyMaps {
    leased: HashMap<MapData, Wire<TableKey>, u64>,
    asks: RingBuf<MapData>,
}

impl LeaseMemory {
    pub(crate) fn open(pins: &PinDir) -> Result<Arc<Self>, DatapathError> {
        let failed = DatapathError::map(map::LEASES);
        let data = MapData::from_pin(pins.map(map::LEASES)).map_err(failed)?;
        let mapped = |io_error: io::Error| DatapathError::Map {
            map: map::LEASES,
            source: MapError::SyscallError(SyscallError { call: "mmap", io_error }),
        };
        // The size in the object guarantees at least as many leases.
        let bytes = MAX_LEASES as usize * size_of::<HostLease>();
        let fd = data.fd().as_fd();
        let memory = MmapOptions::new().len(bytes).map_raw(&fd).map_err(mapped)?;
        Ok(Arc::new(Self { leases: memory, keys: KeyMaps::open(pins)?.into() }))
    }

    /// The leases, by [`limiter_common::wire::lease_of_budget`].
    #[expect(unsafe_code, reason = "memory that the kernel shares")]
    pub fn all(&self) -> &[HostLease] {
        // SAFETY: so many bytes are mapped, from the beginning of a page on, until this is dropped.
        // The map's values are leases: atomics only, of the same layout, and valid for any bytes.
        unsafe { std::slice::from_raw_parts(self.leases.as_ptr().cast(), MAX_LEASES as usize) }
    }

    pub(crate) fn read(&self, index: u32) -> Option<Lease> {
        self.get(index).map(HostLease::read)
    }

    pub(crate) fn leased(&self, key: &TableKey) -> Read<KeyLeases> {
        let leased = self.with_keys(|keys| keys.leased.get(&Wire(*key), 0));
        Ok(found(map::LEASED, leased)?.map(KeyLeases::from_raw))
    }

    /// Sets the leases of a key. `None` removes its entry, also one that only says that it has
    /// asked.
    pub fn set_leased(
        &self,
        key: &TableKey,
        leases: Option<KeyLeases>,
    ) -> Result<(), DatapathError> {
        self.with_keys(|keys| match leases {
            Some(leases) => keys.leased.insert(Wire(*key), leases.raw(), 0),
            None => match keys.leased.remove(&Wire(*key)) {
                Err(MapError::SyscallError(error))
                    if error.io_error.kind() == io::ErrorKind::NotFound =>
                {
                    Ok(())
                }
                removed => removed,
            },
        })
        .map_err(DatapathError::map(map::LEASED))
    }

    /// Takes the keys that have asked since the last call, the oldest first.
    pub fn take_asks(&self) -> Vec<Ask> {
        self.with_keys(|keys| {
            let mut asks = Vec::new();
            // Bounded by the ring's capacity: more may come meanwhile.
            while let Some(item) = keys.asks.next() {
                // A record of another length would come from another program: the ABI number rules
                // that out.
                asks.extend(bytemuck::try_pod_read_unaligned::<Ask>(&item));
                if asks.len() >= ASK_BYTES as usize / size_of::<Ask>() {
                    break;
                }
            }
            asks
        })
    }

    fn with_keys<T>(&self, with: impl FnOnce(&mut KeyMaps) -> T) -> T {
        with(&mut self.keys.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn get(&self, index: u32) -> Option<&HostLease> {
        self.all().get(usize::try_from(index).ok()?)
    }
}

impl KeyMaps {
    fn open(pins: &PinDir) -> Result<Self, DatapathError> {
        let pinned = |name| MapData::from_pin(pins.map(name)).map_err(DatapathError::map(name));
        let leased = Map::HashMap(pinned(map::LEASED)?);
        let asks = Map::RingBuf(pinned(map::ASKS)?);
        Ok(Self {
            leased: leased.try_into().map_err(DatapathError::map(map::LEASED))?,
            asks: asks.try_into().map_err(DatapathError::map(map::ASKS))?,
        })
    }
}

/// The leases, as the cluster's thread uses them.
pub(crate) struct HeldLeases(pub(crate) Arc<LeaseMemory>);

impl Leases for HeldLeases {
    fn take_asks(&mut self) -> Vec<Ask> {
        self.0.take_asks()
    }

    fn set_leased(&mut self, key: &TableKey, leases: Option<KeyLeases>) {
        match (self.0.set_leased(key, leases), leases) {
            (Ok(()), _) => {}
            // Without an entry the key uses its own share, and asks again.
            (Err(error), Some(_)) => tracing::debug!(%error, "a key finds no room for its leases"),
            // With an outdated entry, the key could use the leases of another one.
            (Err(error), None) => tracing::warn!(%error, "the leases of a key are not taken away"),
        }
    }

    fn forget_keys(&mut self) {
        let keys: Vec<_> = self.0.with_keys(|keys| keys.leased.keys().collect());
        for key in keys {
            match key {
                Ok(key) => Leases::set_leased(self, &key.0, None),
                Err(error) => tracing::warn!(%error, "leases of keys before may still be there"),
            }
        }
        self.0.take_asks();
    }

    fn now(&self) -> u64 {
        monotonic()
    }

    fn seen(&self, lease: u32) -> Counts {
        self.0.get(lease).map_or_else(Counts::default, counts)
    }

    fn write(&mut self, lease: u32, words: Words) {
        if let Some(lease) = self.0.get(lease) {
            grant(lease, words);
        }
    }
}

impl std::fmt::Debug for LeaseMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaseMemory").finish_non_exhaustive()
    }
}
