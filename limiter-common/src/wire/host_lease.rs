//! Leases as the daemon and the host model have them.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering};

use super::lease::Lease;
use crate::time::Ticks;

/// [`Lease`] in atomics: the same layout. In ordinary memory, or mapped from the kernel.
#[derive(Debug, Default)]
#[repr(C)]
pub struct HostLease {
    granted: AtomicU64,
    expires: AtomicU64,
    used: AtomicU64,
    denied: AtomicU64,
    reserved: [AtomicU64; 4],
}

const _: () = assert!(
    size_of::<HostLease>() == size_of::<Lease>()
        && offset_of!(HostLease, granted) == offset_of!(Lease, granted)
        && offset_of!(HostLease, expires) == offset_of!(Lease, expires)
        && offset_of!(HostLease, used) == offset_of!(Lease, used)
        && offset_of!(HostLease, denied) == offset_of!(Lease, denied)
);

impl HostLease {
    /// A lease as it stands in the map.
    pub fn of(lease: &Lease) -> Self {
        Self {
            granted: lease.granted.into(),
            expires: lease.expires.into(),
            used: lease.used.into(),
            denied: lease.denied.into(),
            reserved: Default::default(),
        }
    }

    /// The lease as it stands.
    pub fn read(&self) -> Lease {
        Lease {
            granted: self.granted.load(Ordering::Acquire),
            expires: self.expires.load(Ordering::Acquire),
            used: self.used.load(Ordering::Acquire),
            denied: self.denied.load(Ordering::Relaxed),
            reserved: [0; 4],
        }
    }

    /// Writes the words of the daemon: the total that `used` may reach, and until when.
    pub fn grant(&self, granted: u64, expires: Ticks) {
        self.granted.store(granted, Ordering::Release);
        self.expires.store(expires.get(), Ordering::Release);
    }

    /// Total of units that may be used.
    pub fn granted(&self) -> u64 {
        self.granted.load(Ordering::Acquire)
    }

    /// The instant from which the lease decides nothing.
    pub fn expires(&self) -> Ticks {
        Ticks::new(self.expires.load(Ordering::Acquire))
    }

    /// The word with the total of units that were charged.
    pub const fn used(&self) -> &AtomicU64 {
        &self.used
    }

    /// Adds units that were refused.
    pub fn deny(&self, units: u64) {
        self.denied.fetch_add(units, Ordering::Relaxed);
    }
}
