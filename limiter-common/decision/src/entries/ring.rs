//! The eviction ring: the choice of the slot for a new entry.
//!
//! Every second look follows the cursor, which meets entries in the order in which they came. The
//! other looks are scattered, so that a stretch of entries that may not leave does not hide those
//! that may. With a share `p` of entries that may not leave, scattered over the table, a packet
//! finds no room with probability `p` to the power of [`PROBES`].

use limiter_common::bucket_key::{BUSY, EMPTY};
use limiter_common::hash::scatter;
use limiter_common::time::Ticks;
use limiter_common::wire::EntryKind;

use super::{EntryTableWords, EvictionPolicy, admission, bump};
use crate::cell::Cell;
use crate::maps::Maps;
use crate::outcome::Insert;
use crate::register::Register;

/// Ring slots that are looked at for one new entry.
pub const PROBES: u32 = 16;

/// A ring slot taken for a new entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The index of the slot.
    pub index: u32,
    /// The state of the slot before.
    pub before: u64,
}

/// The index of no ring slot.
const NOWHERE: u64 = 0xffff_ffff;

impl Register for Option<Claim> {
    const LOST: Self = None;

    /// The state cut to 32 bits.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn to_register(self) -> u64 {
        match self {
            Some(Claim { index, before }) => before << 32 | u64::from(index),
            None => NOWHERE,
        }
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn of_register(register: u64) -> Self {
        let index = register & NOWHERE;
        if index == NOWHERE {
            return None;
        }
        Some(Claim { index: index as u32, before: register >> 32 })
    }
}

/// The slot for the look with this number, and the policy for entries that leave for a packet that
/// came at `now`.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn look<W: Maps>(
    maps: &W,
    kind: EntryKind,
    number: u32,
    now: Ticks,
) -> Option<(u32, EvictionPolicy)> {
    let entry_table = maps.entry_table(kind)?;
    let flooded = admission::is_flooded(&entry_table, now);
    let index = next(&entry_table, entry_table.entries(), number);
    // Without a flood the second half of the looks takes what has drained, however lately.
    let patient = flooded || number < PROBES >> 1;
    Some((
        index,
        EvictionPolicy { now, keep: if patient { entry_table.keep() } else { Ticks::ZERO } },
    ))
}

/// The ring slot to look at.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn next(entry_table: &impl EntryTableWords, entries: u64, probe: u32) -> u32 {
    let cursor = entry_table.cursor();
    let ticket = cursor.load();
    let place = if probe & 1 == 0 {
        // A lost exchange is another CPU's step: both look at the same ring slot, and one takes it.
        cursor.compare_exchange(ticket, ticket.wrapping_add(1));
        ticket
    } else {
        scatter(ticket ^ u64::from(probe) << 48)
    };
    let index = place.checked_rem(entries).unwrap_or(0);
    #[expect(clippy::cast_possible_truncation, reason = "a table has less than 2^32 entries")]
    let index = index as u32;
    index
}

/// The state of a ring slot: [`EMPTY`], or the name of its entry; `None` while another CPU has the
/// slot.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn state(slot: &impl Cell) -> Option<u64> {
    let state = slot.load();
    if state == BUSY { None } else { Some(state) }
}

/// Counts an entry that left for another one.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn count_evicted<W: Maps>(maps: &W, kind: EntryKind) {
    if let Some(admission) = maps.admission(kind) {
        bump(&admission.evicted);
    }
}

/// Claims a ring slot that has no entry: the state becomes [`BUSY`]. `None` when another CPU was
/// faster.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn claim(slot: &impl Cell, index: u32, before: u64) -> Option<Claim> {
    if slot.compare_exchange(before, BUSY) { Some(Claim { index, before }) } else { None }
}

/// Gives a ring slot that was taken to the entry that was made, by the name of that, or back.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn complete<W: Maps>(maps: &W, kind: EntryKind, index: u32, made: Insert, name: u64) -> Insert {
    let state = match made {
        Insert::Made => name,
        Insert::Exists | Insert::Refused => EMPTY,
    };
    if let Some(slot) = maps.ring_slot(kind, index) {
        slot.compare_exchange(BUSY, state);
    }
    if matches!(made, Insert::Made)
        && let Some(admission) = maps.admission(kind)
    {
        bump(&admission.made);
    }
    made
}
