//! Leases in the daemon and in the host model.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering};

use super::lease::Lease;
use crate::time::Ticks;

/// [`Lease`] with atomics, in the same layout. In ordinary memory, or mapped from the kernel.
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
    /// Makes it from a stored lease.
    pub fn of(lease: &Lease) -> Self {
        Self {
            granted: lease.granted.into(),
            expires: lease.expires.into(),
            used: lease.used.into(),
            denied: lease.denied.into(),
            reserved: Default::default(),
        }
    }

    /// The current values.
    pub fn read(&self) -> Lease {
        Lease {
            granted: self.granted.load(Ordering::Acquire),
            expires: self.expires.load(Ordering::Acquire),
            used: self.used.load(Ordering::Acquire),
            denied: self.denied.load(Ordering::Relaxed),
            reserved: [0; 4],
        }
    }

    /// Writes the daemon's words: the total that `used` may reach, and the time until which it
    /// holds.
    pub fn grant(&self, granted: u64, expires: Ticks) {
        self.granted.store(granted, Ordering::Release);
        self.expires.store(expires.get(), Ordering::Release);
    }

    /// Total of units that may be used.
    pub fn granted(&self) -> u64 {
        self.granted.load(Ordering::Acquire)
    }

    /// The instant from which the lease no longer decides.
    pub fn expires(&self) -> Ticks {
        Ticks::new(self.expires.load(Ordering::Acquire))
    }

    /// The word with the total of charged units.
    pub const fn used(&self) -> &AtomicU64 {
        &self.used
    }

    /// Adds denied units.
    pub fn deny(&self, units: u64) {
        self.denied.fetch_add(units, Ordering::Relaxed);
    }
}
