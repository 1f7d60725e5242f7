//! The memory of the current packet, per CPU.

use limiter_decision::packet::Facts;
use limiter_decision::table::Scratch;

use super::definitions::SCRATCH;

/// The current packet on this CPU.
#[inline(always)]
pub(crate) fn scratch<'a>() -> Option<&'a Scratch> {
    // SAFETY: this CPU's own copy, alive as long as the program; XDP does not nest on a CPU. Its
    // only field that is not a cell is written through `facts`, before any shared reference.
    SCRATCH.get_ptr_mut(0).map(|scratch| unsafe { &*scratch })
}

/// The facts of the current packet, for writing. The caller has no other reference to them.
#[inline(always)]
pub(crate) fn facts<'a>() -> Option<&'a mut Facts> {
    // SAFETY: this CPU's own copy, alive as long as the program; XDP does not nest on a CPU, and
    // the caller has no other reference to it.
    SCRATCH.get_ptr_mut(0).map(|scratch| unsafe { &mut (*scratch).facts })
}
