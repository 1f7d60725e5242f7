//! A limit that several nodes share: while its lease lives, that decides alone. Otherwise the limit
//! of the record does, which is this node's own share.

use super::scratch::{Charge, Scratch};
use crate::cell::Cell as _;
use crate::meter::{Arrival, Charged, Peek};
use crate::wire::{Record, lease_of_budget};
use crate::world::{Lease as _, World};

/// The lease of the limit at a place of a record, if nodes share it.
#[inline(always)]
pub(super) fn lease_of<W: World>(maps: &W, record: &Record, place: u32) -> Option<LeaseRef<W>> {
    if !is_set(record.leased, place) {
        return None;
    }
    let index = lease_of_budget(record.budget.checked_sub(1)?, place);
    let lease = maps.lease(index)?;
    Some(LeaseRef { lease, index, closed: is_set(record.closed, place) })
}

/// True if the bit of a place is set in a mask of places.
#[inline(always)]
pub(super) const fn is_set(mask: u8, place: u32) -> bool {
    mask as u32 >> (place & 7) & 1 != 0
}

/// A lease, and how it came to be asked.
pub(super) struct LeaseRef<W: World> {
    lease: W::Lease,
    index: u32,
    /// True if nothing passes without a living lease.
    closed: bool,
}

impl<W: World> LeaseRef<W> {
    /// True if the lease decides: it lives, or nothing else may.
    #[inline(always)]
    pub(super) fn decides(&self, arrival: &Arrival) -> bool {
        self.closed || arrival.now < self.lease.expires()
    }

    /// The total that a packet would raise `used` to; `None` if there is no room for it.
    #[inline(always)]
    fn room(&self, used: u64, arrival: &Arrival) -> Option<u64> {
        let total = used.wrapping_add(arrival.units);
        let lives = arrival.now < self.lease.expires();
        // Totals do not come near 2^64: that many bytes are 46 years of 100 Gbit/s.
        if lives && total <= self.lease.granted() { Some(total) } else { None }
    }

    /// Looks at the lease without charging the packet. Its refusal is counted.
    #[inline(always)]
    pub(super) fn peek(&self, arrival: &Arrival) -> Peek {
        match self.room(self.lease.used().load(), arrival) {
            Some(_) => Peek::Conforming,
            None => self.refuse(arrival),
        }
    }

    /// Counts a packet as refused, by the lease or by the share: it is demand for the next lease.
    #[inline(always)]
    pub(super) fn refuse(&self, arrival: &Arrival) -> Peek {
        self.lease.deny(arrival.units);
        Peek::Over
    }

    /// Tries once to charge the packet, and notes in account `index` how to take that back.
    #[inline(always)]
    pub(super) fn attempt(&self, scratch: &Scratch, arrival: &Arrival, index: u32) -> Charged {
        let used = self.lease.used();
        let old = used.load();
        let Some(new) = self.room(old, arrival) else {
            return Charged::Over;
        };
        if !used.compare_exchange(old, new) {
            return Charged::Contended;
        }
        scratch.note(index, Charge::Lease(self.index), old, new);
        Charged::Conforming
    }
}

/// Takes a charge to a lease back, if nobody has charged it since; otherwise it stays charged, the
/// safe side.
#[inline(always)]
pub fn undo_lease<W: World>(maps: &W, index: u32, old: u64, new: u64) {
    if let Some(lease) = maps.lease(index) {
        lease.used().compare_exchange(new, old);
    }
}

#[cfg(not(target_arch = "bpf"))]
pub use host::HostLease;

#[cfg(not(target_arch = "bpf"))]
mod host {
    use core::mem::offset_of;
    use core::sync::atomic::{AtomicU64, Ordering};

    use crate::cell::Cell;
    use crate::time::Ticks;
    use crate::wire;

    /// [`wire::Lease`] in atomics: the same layout. In ordinary memory, or mapped from the kernel.
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
        size_of::<HostLease>() == size_of::<wire::Lease>()
            && offset_of!(HostLease, granted) == offset_of!(wire::Lease, granted)
            && offset_of!(HostLease, expires) == offset_of!(wire::Lease, expires)
            && offset_of!(HostLease, used) == offset_of!(wire::Lease, used)
            && offset_of!(HostLease, denied) == offset_of!(wire::Lease, denied)
    );

    impl HostLease {
        /// A lease as it stands in the map.
        pub fn of(lease: &wire::Lease) -> Self {
            Self {
                granted: lease.granted.into(),
                expires: lease.expires.into(),
                used: lease.used.into(),
                denied: lease.denied.into(),
                reserved: Default::default(),
            }
        }

        /// The lease as it stands.
        pub fn read(&self) -> wire::Lease {
            wire::Lease {
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
    }

    impl<L: core::ops::Deref<Target = HostLease>> crate::world::Lease for L {
        fn granted(&self) -> u64 {
            self.granted.load(Ordering::Acquire)
        }

        fn expires(&self) -> Ticks {
            Ticks::new(self.expires.load(Ordering::Acquire))
        }

        fn used(&self) -> impl Cell {
            &self.used
        }

        fn deny(&self, units: u64) {
            self.denied.fetch_add(units, Ordering::Relaxed);
        }
    }
}
