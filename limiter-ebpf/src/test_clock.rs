//! The clock of the shipped program has one reading for several packets. In tests each packet has a time of its own.

use limiter_common::time::Ticks;

/// The time now: that of the packet.
#[inline(always)]
pub(crate) const fn exact(recent: Ticks) -> Ticks {
    recent
}
