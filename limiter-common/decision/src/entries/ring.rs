//! The eviction ring: chooses the slot for a new entry.
//!
//! Every second probe follows the cursor, which meets entries in the order in which they came. The
//! other probes are scattered, so that a stretch of entries that may not be evicted does not hide
//! others. If a share `p` of entries, scattered over the table, may not be evicted, a packet finds
//! no space with probability `p` to the power of [`PROBES`].

use limiter_common::bucket_key::{BUSY, EMPTY};
use limiter_common::hash::scatter;
use limiter_common::time::Ticks;
use limiter_common::wire::EntryKind;

use super::{EntryTableWords, EvictionPolicy, admission, bump};
use crate::cell::Cell;
use crate::maps::Maps;
use crate::outcome::Insert;
use crate::register::Register;

/// Ring slots examined for one new entry.
pub const PROBES: u32 = 16;

/// A ring slot claimed for a new entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The index of the slot.
    pub index: u32,
    /// The state of the slot before.
    pub before: u64,
}

/// The index that stands for no ring slot.
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

/// The slot for the probe with this number, and the eviction policy for a packet that came at
/// `now`.
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
    // Without a flood the second half of the probes evicts entries that drained, however recently.
    let patient = flooded || number < PROBES >> 1;
    Some((
        index,
        EvictionPolicy { now, keep: if patient { entry_table.keep() } else { Ticks::ZERO } },
    ))
}

/// The ring slot to examine.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn next(entry_table: &impl EntryTableWords, entries: u64, probe: u32) -> u32 {
    let cursor = entry_table.cursor();
    let ticket = cursor.load();
    let place = if probe & 1 == 0 {
        // A lost exchange means another CPU's step: both examine the same ring slot, and one claims
        // it.
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

/// The state of a ring slot: [`EMPTY`], or the name of its entry; `None` while another CPU has
/// claimed the slot.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn state(slot: &impl Cell) -> Option<u64> {
    let state = slot.load();
    if state == BUSY { None } else { Some(state) }
}

/// Counts an entry that was evicted for another one.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn count_evicted<W: Maps>(maps: &W, kind: EntryKind) {
    if let Some(admission) = maps.admission(kind) {
        bump(&admission.evicted);
    }
}

/// Claims a ring slot without an entry: its state becomes [`BUSY`]. `None` if another CPU was
/// faster.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn claim(slot: &impl Cell, index: u32, before: u64) -> Option<Claim> {
    if slot.compare_exchange(before, BUSY) { Some(Claim { index, before }) } else { None }
}

/// Assigns a claimed ring slot to the entry that was made, by its name, or releases it.
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
