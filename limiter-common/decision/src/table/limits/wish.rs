//! Whether a key has leases, and the request for them.

use limiter_common::bucket::Slot;
use limiter_common::wire::{KeyLeases, MAX_LIMITS};

use super::lease::is_set;
use super::limit::limit_fill;
use crate::call::call;
use crate::cell::Cell as _;
use crate::maps::Maps;
use crate::meter::carry::is_half_used;
use crate::outcome::Insert;
use crate::rounds::Rounds;
use crate::table::result::{PLACES, Wish};
use crate::table::scratch::Scratch;

/// Writes the leases of the packet's key in a table into the scratch.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn find_leases<W: Maps>(maps: &W, scratch: &Scratch, index: u32) {
    let found = scratch.key(index).and_then(|key| maps.leased(key));
    let raw = found.map(|word| word.load());
    scratch.wish.set(match raw {
        None => Wish::Free,
        Some(raw) if raw == KeyLeases::ELSEWHERE.raw() => Wish::Asks,
        Some(_) => Wish::Settled,
    });
    if let Some(raw) = raw {
        scratch.leases.set(KeyLeases::from_raw(raw));
    }
}

/// Records in the scratch that the packet's key needs leases: half of its share of a limit is used,
/// or it has no share. Leases take some time to arrive, so the rest is for the time until then.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn need_leases<W: Maps>(maps: &W, scratch: &Scratch, bucket: &W::Keyed, slot: Slot) {
    let Some(record) = maps.record(slot) else {
        return;
    };
    let mut rounds = Rounds::new();
    while let Some(place) = rounds.next(PLACES) {
        let place = scratch.unknown(place);
        // Masked, so that the verifier sees the bound.
        let Some(spec) = record.limits.get(place as usize & (MAX_LIMITS - 1)) else {
            break;
        };
        if is_set(record.leased, place)
            && scratch.units::<W>(spec.counts()) > 0
            && (record.needs_leases(place)
                || is_half_used(
                    spec,
                    call!(limit_fill(maps, scratch; bucket, slot, place, scratch.now())),
                ))
        {
            scratch.wish.set(Wish::Asks);
            break;
        }
    }
}

/// Asks for leases for the packet's key in a table, whose record is in `slot`.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn ask<W: Maps>(maps: &W, scratch: &Scratch, index: u32, slot: Slot) {
    let Some(key) = scratch.key(index) else {
        return;
    };
    let (asked, elsewhere) = (KeyLeases::ASKED.raw(), KeyLeases::ELSEWHERE.raw());
    // Only one packet reports, on any CPU. If it cannot, a later one does.
    if let Some(word) = maps.leased(key) {
        if word.compare_exchange(elsewhere, asked) && !maps.ask(key, slot) {
            word.compare_exchange(asked, elsewhere);
        }
    } else if matches!(maps.insert_leased(key), Insert::Made) && !maps.ask(key, slot) {
        maps.remove_leased(key);
    }
}
