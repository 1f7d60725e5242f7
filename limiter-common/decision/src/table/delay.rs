//! The departure of a packet that is charged to limits which let packets wait.

use limiter_common::wire::{MAX_LIMITS, Record};

use super::result::PLACES;
use super::scratch::{Charge, Scratch};
use crate::maps::Maps;
use crate::meter::{self, Undo};
use crate::register::variants;
use crate::rounds::Rounds;

/// The wait of a packet at the limits of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Wait {
    /// It conforms now.
    None = 0,
    /// It conforms later.
    Some = 1,
    /// It conforms later, after at least half of the longest wait.
    Long = 2,
}

variants!(Wait: None Some, else Long; lost None);

/// Holds the packet back until it conforms to every limit that account `index` has charged. The
/// charges are done, so nothing is decided here.
///
/// Each charge raised the TAT of its bucket, so of two packets of one bucket the one that is
/// charged later departs later.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn delay<W: Maps>(maps: &W, scratch: &Scratch, index: u32) -> Wait {
    let Some(account) = scratch.account(index) else {
        return Wait::None;
    };
    let Some(record) = maps.record(account.target().0) else {
        return Wait::None;
    };
    if record.is_shadow(scratch.daemon_lost()) {
        return Wait::None;
    }
    let now = scratch.now();
    let mut departure = now;
    let mut rounds = Rounds::new();
    while let Some(number) = rounds.next(PLACES) {
        if number >= account.charges.get() {
            break;
        }
        let number = scratch.unknown(number) as usize;
        // A bucket in time has one word, so its word and its limit have one index.
        if let Some(undo) = account.undos.get(number & (MAX_LIMITS - 1))
            && let (Charge::Word(index), old, new) = undo.get()
            && let Some(spec) = record.limits.get(index as usize & (MAX_LIMITS - 1))
        {
            let at = meter::departure(spec, &Undo { index, old, new }, now);
            departure = if at > departure { at } else { departure };
        }
    }
    // Also a packet that conforms now: the queue has no order between one with a time and one
    // without.
    scratch.depart_at(departure);
    let [first, ..] = &record.limits;
    let wait = departure.since(now).get();
    if wait == 0 {
        Wait::None
    } else if wait < first.longest_wait().get() >> 1 {
        Wait::Some
    } else {
        Wait::Long
    }
}

/// True if packets over the limits of a record wait. All of its limits have the same longest wait.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) const fn delays(record: &Record) -> bool {
    let [first, ..] = &record.limits;
    first.longest_wait().get() != 0
}
