//! Drops in a row of one source: [`limiter_common::wire::Uncounted`].

use limiter_common::source::Source;

use super::kernel::{Home as _, Kernel};
use super::maps::UNCOUNTED;
use crate::step::step;

/// Counts a drop; says how many to add to the bucket of the source now.
#[inline(always)]
pub(crate) fn count(source: &Source) -> u64 {
    let Some(uncounted) = UNCOUNTED.get_ptr_mut(0) else {
        return 1;
    };
    // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
    if let Some(packets) = unsafe { &mut *uncounted }.again(source) {
        return packets;
    }
    step!(begin_drops(; source));
    1
}

/// Adds up what is held of the last source, and begins with this one.
#[inline(always)]
pub(crate) fn begin_drops(source: &Source) {
    let Some(uncounted) = UNCOUNTED.get_ptr_mut(0) else {
        return;
    };
    // SAFETY: as above; the caller's reference is used no more.
    let uncounted = unsafe { &mut *uncounted };
    let (before, packets) = uncounted.held();
    if packets != 0
        && let Some(meter) = Kernel.find(&before)
    {
        Kernel.count_drops(&meter, packets);
    }
    uncounted.begin(source);
}
