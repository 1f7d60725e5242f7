//! The departure of a packet that is charged to limits whose packets may wait.

use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{MAX_LIMITS, Record};

use super::weight::MARKED;
use crate::call::call;
use crate::maps::Maps;
use crate::meter::{self, Undo};
use crate::outcome::Packed;
use crate::rounds::Rounds;
use crate::table::result::PLACES;
use crate::table::scratch::{Charge, SOURCE_CLASS, Scratch};

/// Delays the packet until it conforms to every limit that account `index` has charged, if its rule
/// says so. The charges are done, so this changes no verdict.
///
/// Each charge raised the TAT of its bucket, so of two packets of one bucket the one charged later
/// departs later.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn delay<W: Maps>(maps: &W, scratch: &Scratch, index: u32) {
    let Some(account) = scratch.account(index) else {
        return;
    };
    let Some(record) = maps.record(account.target().0) else {
        return;
    };
    let longest = longest_wait(record).get();
    if longest == 0 || record.is_shadow(scratch.daemon_lost()) {
        return;
    }
    let now = scratch.now();
    scratch.conforms_at.set(now.get());
    let mut rounds = Rounds::new();
    while let Some(number) = rounds.next(PLACES) {
        if number >= account.charges.get() {
            break;
        }
        call!(wait_for(maps, scratch; index, number));
    }
    let departure = Ticks::new_within(scratch.conforms_at.get());
    // Also for a packet that conforms now: the queue does not order packets with and without a
    // time.
    scratch.depart_at(departure);
    let wait = departure.since(now).get();
    if wait == 0 {
        return;
    }
    // ECN's congestion mark, if the rule or its budget has it.
    let marked = u32::from(if wait < longest >> 1 { 0 } else { record.soft_action });
    account.reason.set(Reason::Delayed.index());
    account.weight.set(MARKED);
    account.action.set(marked);
    if index == SOURCE_CLASS {
        // For the source table the outcome is reported instead of the account.
        let outcome = Packed::from_raw(scratch.source_outcome.get());
        scratch.source_outcome.set(outcome.passed_as(Reason::Delayed.index(), marked).raw());
    }
}

/// Records when the packet conforms to the limit that account `index` charged as `number`, if that
/// is later than recorded before.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn wait_for<W: Maps>(maps: &W, scratch: &Scratch, index: u32, number: u32) {
    let Some(account) = scratch.account(index) else {
        return;
    };
    // A bucket measured in time has one word, so its word and its limit have the same index.
    if let Some(undo) = account.undos.get(number as usize & (MAX_LIMITS - 1))
        && let (Charge::Word(index), old, new) = undo.get()
        && let Some(record) = maps.record(account.target().0)
        && let Some(spec) = record.limits.get(index as usize & (MAX_LIMITS - 1))
    {
        let at = meter::departure(spec, &Undo { index, old, new }, scratch.now());
        if at.get() > scratch.conforms_at.get() {
            scratch.conforms_at.set(at.get());
        }
    }
}

/// How long packets over the limits of a record wait: all limits have the same longest wait.
#[cfg_attr(target_arch = "bpf", inline(always))]
const fn longest_wait(record: &Record) -> Ticks {
    let [first, ..] = &record.limits;
    first.longest_wait()
}
