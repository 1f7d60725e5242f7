//! A plain token bucket ([`LimitSpec::is_plain`]). This is the most common case, so there is no
//! question of algorithm or words here. The result is that of [`super::peek`] and
//! [`super::attempt`].

use limiter_common::time::Ticks;
use limiter_common::wire::LimitSpec;

use super::{Arrival, Charged, Peek, Undo};
use crate::cell::Cell;
use crate::gcra::Charge;

#[cfg_attr(target_arch = "bpf", inline(always))]
fn charge(spec: &LimitSpec, arrival: &Arrival) -> Charge {
    let Arrival { now, units, is_super_frame, .. } = *arrival;
    Charge::of_units(&spec.rate(), now, units, is_super_frame)
}

/// [`super::peek`], from the word of the limit.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn peek(spec: &LimitSpec, word: &impl Cell, scale: bool, arrival: &Arrival) -> Peek {
    let raw = word.load();
    if raw & 1 != u64::from(scale) {
        return Peek::Moved;
    }
    let charge = charge(spec, arrival);
    match charge.apply(Ticks::new_within(raw >> 1)) {
        Some(_) => Peek::Conforming,
        None => Peek::Over,
    }
}

/// [`super::attempt`], at the word of the limit. The index in `undo` stays as it is.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn attempt(
    spec: &LimitSpec,
    word: &impl Cell,
    scale: bool,
    arrival: &Arrival,
    undo: &mut Undo,
) -> Charged {
    let old = word.load();
    if old & 1 != u64::from(scale) {
        return Charged::Moved;
    }
    let charge = charge(spec, arrival);
    let Some(tat) = charge.apply(Ticks::new_within(old >> 1)) else {
        return Charged::Over;
    };
    let new = tat.get() << 1 | u64::from(scale);
    if !word.compare_exchange(old, new) {
        return Charged::Contended;
    }
    *undo = Undo { old, new, ..*undo };
    Charged::Conforming
}
