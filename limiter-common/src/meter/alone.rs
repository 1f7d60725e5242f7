//! A token bucket that is the only limit of its rule. This is the most common case, so there is no
//! question of algorithm or words here. The result is that of [`super::peek`] and
//! [`super::attempt`].

use super::{Arrival, Charged, Peek, Undo};
use crate::cell::Cell;
use crate::gcra::Charge;
use crate::time::Ticks;
use crate::wire::LimitSpec;

/// [`super::peek`], from the first word of the bucket.
#[inline(always)]
pub fn peek(spec: &LimitSpec, first: &impl Cell, scale: bool, arrival: &Arrival) -> Peek {
    let raw = first.load();
    if raw & 1 != u64::from(scale) {
        return Peek::Moved;
    }
    let charge = Charge::new(&spec.rate(), arrival.now, arrival.units);
    match charge.apply(Ticks::new_within(raw >> 1)) {
        Some(_) => Peek::Conforming,
        None => Peek::Over,
    }
}

/// [`super::attempt`], at the first word of the bucket.
#[inline(always)]
pub fn attempt(
    spec: &LimitSpec,
    first: &impl Cell,
    scale: bool,
    arrival: &Arrival,
    undo: &mut Undo,
) -> Charged {
    let old = first.load();
    if old & 1 != u64::from(scale) {
        return Charged::Moved;
    }
    let charge = Charge::new(&spec.rate(), arrival.now, arrival.units);
    let Some(tat) = charge.apply(Ticks::new_within(old >> 1)) else {
        return Charged::Over;
    };
    let new = tat.get() << 1 | u64::from(scale);
    if !first.compare_exchange(old, new) {
        return Charged::Contended;
    }
    *undo = Undo { index: 0, old, new };
    Charged::Conforming
}
