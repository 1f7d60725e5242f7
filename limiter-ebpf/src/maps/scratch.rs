//! The memory of the packet under way: this CPU's own.

use limiter_decision::packet::Facts;
use limiter_decision::table::Scratch;

use super::definitions::SCRATCH;

/// The packet under way on this CPU.
#[inline(always)]
pub(crate) fn scratch<'a>() -> Option<&'a Scratch> {
    // SAFETY: this CPU's own copy, alive as long as the program; XDP does not nest on a CPU. Its
    // only field that is no cell is written through `facts`, before any shared reference.
    SCRATCH.get_ptr_mut(0).map(|scratch| unsafe { &*scratch })
}

/// The facts of the packet under way, to be written. The caller has no other reference to them.
#[inline(always)]
pub(crate) fn facts<'a>() -> Option<&'a mut Facts> {
    // SAFETY: this CPU's own copy, alive as long as the program; XDP does not nest on a CPU, and
    // whoever calls this has no other reference to it.
    SCRATCH.get_ptr_mut(0).map(|scratch| unsafe { &mut (*scratch).facts })
}
