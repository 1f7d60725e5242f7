//! The short way of a packet whose keys are narrow ([`super::narrow`]) in all tables that it is in.
//!
//! Seldom a packet goes on in [`super::narrow_row`]: with a key that has no bucket, or one that is
//! not up to date, and where another CPU outruns it.

use limiter_common::bucket::Change;
use limiter_common::owner::Owner;
use limiter_common::verdict::Reason;
use limiter_common::wire::MAX_TABLES;

use super::narrow::narrow_in;
use super::narrow_row::{Look, charge_narrow, charge_quickly, look, look_narrow};
use super::run::charge_source;
use super::scratch::Scratch;
use super::weight::passed;
use crate::cell::{Cell, SourceBucket};
use crate::engine::source::{carry_on, count_drop, find};
use crate::outcome::{Outcome, Packed};
use crate::rounds::Rounds;
use crate::step::step;
use crate::world::World;

/// Judges a packet that [`super::judge_shortly`] found in tables where its key is narrow, and in no
/// other ones, and by the source table; none where it has to go another way, with nothing charged
/// and nothing counted.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn judge_narrow<W: World>(maps: &W, scratch: &Scratch) -> Option<Packed> {
    let narrow = scratch.narrow.get();
    if narrow == 0 || scratch.wide.get() != 0 {
        return None;
    }
    if narrow.is_power_of_two() {
        let outcome = step!(judge_narrow_key(maps, scratch;));
        if outcome.is_some() {
            return outcome;
        }
    }
    step!(judge_narrow_keys(maps, scratch;))
}

/// [`judge_narrow`] of a packet with one key, which has a bucket that is up to date: that is kept
/// from the look to the charge, and the look leaves nothing in the scratch.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn judge_narrow_key<W: World>(maps: &W, scratch: &Scratch) -> Option<Packed> {
    let owner = only_key(maps, scratch)?;
    let bucket = find(maps, &owner)?;
    let Look { exchange, rule } = look(maps, scratch, &bucket)?;
    let Some(Change { old, new }) = exchange else {
        count_drop(maps, &owner, &bucket);
        return Some(Outcome::new(Reason::OverLimit, rule).pack());
    };
    if let Err(outcome) = charge_source(maps, scratch) {
        return outcome;
    }
    if !bucket.word().compare_exchange(old, new) {
        scratch.begin_row(owner);
        return charge_rest(maps, scratch, 0);
    }
    maps.count_rule(rule, Reason::Conforming, scratch.length(), true);
    bucket.count_passed();
    carry_on(maps, &owner, &bucket);
    Some(passed(Packed::from_raw(scratch.source_outcome.get())))
}

/// [`judge_narrow`] of a packet with any keys.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn judge_narrow_keys<W: World>(maps: &W, scratch: &Scratch) -> Option<Packed> {
    let outcome = look_narrow(maps, scratch);
    if outcome.is_some() {
        return outcome;
    }
    if let Err(outcome) = charge_source(maps, scratch) {
        return outcome;
    }
    let length = scratch.narrow_keys.get();
    let mut rounds = Rounds::new();
    while let Some(place) = rounds.next(u64::from(MAX_TABLES)) {
        if place >= length {
            break;
        }
        if !charge_quickly(maps, scratch, scratch.unknown(place)) {
            if place > 0 {
                scratch.conforms();
            }
            return charge_rest(maps, scratch, place);
        }
    }
    Some(passed(Packed::from_raw(scratch.source_outcome.get())))
}

/// Charges the keys from a place of the row on.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn charge_rest<W: World>(maps: &W, scratch: &Scratch, first: u32) -> Option<Packed> {
    let outcome = step!(charge_narrow(maps, scratch; first));
    if outcome.is_some() {
        return outcome;
    }
    Some(Packed::from_raw(scratch.source_outcome.get()))
}

/// The only narrow key of a packet.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn only_key<W: World>(maps: &W, scratch: &Scratch) -> Option<Owner> {
    let table = maps.table(scratch.generation(), scratch.last.get())?;
    Some(narrow_in(table, &scratch.facts, &scratch.key_facts.get()))
}
