//! A limit that several nodes share: while its lease is valid, only the lease decides. Otherwise
//! the limit of the record does, which is this node's own share.
//!
//! A budget always has leases. A key has them while it needs some: it asks once half of its share
//! is used, or if it has no share. So a flood of keys that send one packet each asks for nothing.

use limiter_common::bucket::Slot;
#[cfg(not(target_arch = "bpf"))]
use limiter_common::time::Ticks;
#[cfg(not(target_arch = "bpf"))]
use limiter_common::window::WallOffset;
#[cfg(not(target_arch = "bpf"))]
use limiter_common::wire::HostLease;
use limiter_common::wire::{KeyLeases, Record, lease_of_budget};

use crate::cell::Cell as _;
use crate::maps::{Lease, Maps};
#[cfg(not(target_arch = "bpf"))]
use crate::meter::repeat;
use crate::meter::{Arrival, Charged, Peek};
use crate::table::scratch::{Charge, Scratch};

/// The lease of the limit at a place of the record in a slot, if nodes share it and it has one.
/// `leases` belong to the packet's key.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn lease_of<W: Maps>(
    maps: &W,
    record: &Record,
    slot: Slot,
    place: u32,
    leases: KeyLeases,
) -> Option<LeaseRef<W::Lease>> {
    if !is_set(record.leased, place) {
        return None;
    }
    let index = match record.budget.checked_sub(1) {
        Some(budget) => lease_of_budget(budget, place),
        None => leases.lease(slot, place)?,
    };
    let lease = maps.lease(index)?;
    Some(LeaseRef { lease, index, closed: is_set(record.closed, place) })
}

#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) const fn is_set(mask: u8, place: u32) -> bool {
    mask as u32 >> (place & 7) & 1 != 0
}

/// A lease, and how it came to be asked.
pub(crate) struct LeaseRef<L> {
    lease: L,
    index: u32,
    /// True if nothing passes without a valid lease.
    closed: bool,
}

impl<L: Lease> LeaseRef<L> {
    /// True if the lease decides: it is valid, or nothing else may.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) fn decides(&self, arrival: &Arrival) -> bool {
        self.closed || arrival.now < self.lease.expires()
    }

    /// The total to which a packet would raise `used`; `None` if it does not fit.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn room(&self, used: u64, arrival: &Arrival) -> Option<u64> {
        // The daemon stores `granted` first: a CPU that sees the new end also sees the new grant.
        let lives = arrival.now < self.lease.expires();
        self.lease.used().acquire_fence();
        let left = self.lease.granted().saturating_sub(used);
        if lives && arrival.units <= left { Some(used.wrapping_add(arrival.units)) } else { None }
    }

    /// Checks the lease without charging the packet. Counts a denial.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) fn peek(&self, arrival: &Arrival) -> Peek {
        match self.room(self.lease.used().load(), arrival) {
            Some(_) => Peek::Conforming,
            None => self.refuse(arrival),
        }
    }

    /// Counts a packet as denied, by the lease or by the share: this is demand for the next lease.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) fn refuse(&self, arrival: &Arrival) -> Peek {
        self.lease.deny(arrival.units);
        Peek::Over
    }

    /// Tries once to charge the packet, and records in account `index` how to undo that.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) fn attempt(&self, scratch: &Scratch, arrival: &Arrival, index: u32) -> Charged {
        self.exchange(arrival, |old, new| scratch.note(index, Charge::Lease(self.index), old, new))
    }

    /// Tries once to charge the packet, and passes the totals before and after to `note`.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn exchange(&self, arrival: &Arrival, note: impl FnOnce(u64, u64)) -> Charged {
        let used = self.lease.used();
        let old = used.load();
        let Some(new) = self.room(old, arrival) else {
            return Charged::Over;
        };
        if !used.compare_exchange(old, new) {
            return Charged::Contended;
        }
        note(old, new);
        Charged::Conforming
    }
}

/// Undoes a charge to a lease, if nobody has charged it since; otherwise it stays charged, which is
/// the safe side.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn undo_lease<W: Maps>(maps: &W, index: u32, old: u64, new: u64) {
    if let Some(lease) = maps.lease(index) {
        take_back(&lease, old, new);
    }
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn take_back(lease: &impl Lease, old: u64, new: u64) {
    lease.used().compare_exchange(new, old);
}

/// Judges a packet of `units` by a lease alone, as the program does; true if it passes.
#[cfg(not(target_arch = "bpf"))]
pub fn passes(lease: &HostLease, units: u64, now: Ticks) -> bool {
    let lease = LeaseRef { lease, index: 0, closed: true };
    let offset = WallOffset::from_raw(0);
    let arrival = Arrival { now, offset, units, is_super_frame: false };
    lease.peek(&arrival) == Peek::Conforming
        && repeat(|| lease.exchange(&arrival, |_, _| {})) == Charged::Conforming
}

#[cfg(test)]
mod tests {
    use limiter_common::time::Ticks;
    use limiter_common::window::WallOffset;
    use limiter_common::wire;

    use super::*;

    const END: u64 = 1000;

    fn lease(granted: u64, used: u64) -> HostLease {
        HostLease::of(&wire::Lease { granted, expires: END, used, ..wire::Lease::default() })
    }

    fn of(lease: &HostLease) -> LeaseRef<&HostLease> {
        LeaseRef { lease, index: 5, closed: false }
    }

    fn at(now: u64, units: u64) -> Arrival {
        let (now, offset) = (Ticks::new(now), WallOffset::from_raw(0));
        Arrival { now, offset, units, is_super_frame: false }
    }

    /// Checks and charges, which must agree. Returns the units used afterwards.
    fn charge(lease: &HostLease, arrival: &Arrival) -> Option<u64> {
        let looked = of(lease).peek(arrival);
        let charged = of(lease).attempt(&Scratch::empty(), arrival, 0);
        assert_eq!(looked == Peek::Conforming, charged == Charged::Conforming);
        (charged == Charged::Conforming).then(|| lease.read().used)
    }

    #[test]
    fn the_last_unit_passes_and_the_next_does_not() {
        let held = lease(110, 100);
        assert_eq!(charge(&held, &at(0, 11)), None);
        assert_eq!(charge(&held, &at(0, 10)), Some(110));
        assert_eq!(charge(&held, &at(0, 1)), None);
        // A denied check is demand; a denied charge was preceded by a check.
        let lease = held.read();
        assert_eq!((lease.used, lease.denied, lease.granted), (110, 12, 110));
    }

    #[test]
    fn less_granted_than_used_passes_nothing() {
        let held = lease(99, 100);
        assert_eq!(charge(&held, &at(0, 1)), None);
        assert_eq!(charge(&held, &at(0, u64::MAX)), None);
        assert_eq!(held.read().used, 100);
    }

    #[test]
    fn a_lease_decides_until_its_end() {
        let held = lease(10, 0);
        assert!(of(&held).decides(&at(END - 1, 1)));
        assert_eq!(charge(&held, &at(END - 1, 1)), Some(1));
        for now in [END, END + 1, u64::MAX] {
            assert!(!of(&held).decides(&at(now, 1)));
            assert_eq!(charge(&held, &at(now, 1)), None, "{now}");
        }
        // A lease that was never set never decides.
        assert!(!of(&HostLease::default()).decides(&at(0, 1)));
        assert_eq!(charge(&HostLease::default(), &at(0, 1)), None);
    }

    #[test]
    fn closed_decides_also_without_a_lease_and_refuses() {
        let over = lease(10, 0);
        let closed = LeaseRef { closed: true, ..of(&over) };
        assert!(closed.decides(&at(END, 1)));
        assert_eq!(closed.peek(&at(END, 3)), Peek::Over);
        assert_eq!(closed.attempt(&Scratch::empty(), &at(END, 3), 0), Charged::Over);
        assert_eq!((over.read().used, over.read().denied), (0, 3));
        assert_eq!(closed.peek(&at(END - 1, 3)), Peek::Conforming);
    }

    #[test]
    fn totals_reach_the_end_of_their_words() {
        let held = lease(u64::MAX, u64::MAX - 5);
        for units in [6, 7, 1 << 63, u64::MAX] {
            assert_eq!(charge(&held, &at(0, units)), None, "{units}");
        }
        assert_eq!(charge(&held, &at(0, 5)), Some(u64::MAX));
        assert_eq!(charge(&held, &at(0, 1)), None);
    }

    #[test]
    fn a_charge_is_taken_back_unless_another_followed() {
        let held = lease(100, 0);
        assert_eq!(charge(&held, &at(0, 40)), Some(40));
        take_back(&&held, 0, 40);
        assert_eq!(held.read().used, 0);
        assert_eq!((charge(&held, &at(0, 40)), charge(&held, &at(0, 1))), (Some(40), Some(41)));
        take_back(&&held, 0, 40);
        assert_eq!(held.read().used, 41);
        // The later charge can be undone, and then the earlier one.
        take_back(&&held, 40, 41);
        take_back(&&held, 0, 40);
        assert_eq!(held.read().used, 0);
    }

    #[test]
    fn a_place_has_a_lease_where_its_bit_is_set() {
        for (mask, place, set) in [(0, 0, false), (1, 0, true), (1, 1, false), (8, 3, true)] {
            assert_eq!(is_set(mask, place), set, "{mask} {place}");
        }
    }
}
