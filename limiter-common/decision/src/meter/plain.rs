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
    plan(spec, word, scale, arrival, &mut Undo::default())
}

/// [`peek`] for a packet that will be charged: if it conforms, `undo` has the words before and
/// after the charge, and its index stays as it is.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn plan(
    spec: &LimitSpec,
    word: &impl Cell,
    scale: bool,
    arrival: &Arrival,
    undo: &mut Undo,
) -> Peek {
    let old = word.load();
    if old & 1 != u64::from(scale) {
        return Peek::Moved;
    }
    let Some(tat) = charge(spec, arrival).apply(Ticks::new_within(old >> 1)) else {
        return Peek::Over;
    };
    *undo = Undo { old, new: tat.get() << 1 | u64::from(scale), ..*undo };
    Peek::Conforming
}

/// [`super::attempt`], at the word of the limit: [`plan`], carried out.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn attempt(
    spec: &LimitSpec,
    word: &impl Cell,
    scale: bool,
    arrival: &Arrival,
    undo: &mut Undo,
) -> Charged {
    match plan(spec, word, scale, arrival, undo) {
        Peek::Conforming if word.compare_exchange(undo.old, undo.new) => Charged::Conforming,
        Peek::Conforming => Charged::Contended,
        Peek::Over => Charged::Over,
        Peek::Moved => Charged::Moved,
    }
}
