//! Drops in a row of one source: [`Uncounted`].

use aya_ebpf::{btf_maps::PerCpuArray, macros::btf_map};
use limiter_common::engine::Maps as _;
use limiter_common::source::Source;
use limiter_common::wire::Uncounted;

use crate::home;
use crate::maps::KernelMaps;

/// What each CPU has not counted yet. Written here; read by the daemon.
#[btf_map]
static UNCOUNTED: PerCpuArray<Uncounted, 1> = PerCpuArray::new();

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
    let (word, version) = source.to_word();
    limiter_begin_drops(word, version);
    1
}

/// Adds up what is held of the last source, and begins with this one.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_begin_drops(source: u64, version: u32) -> u32 {
    let Some(uncounted) = UNCOUNTED.get_ptr_mut(0) else {
        return 0;
    };
    // SAFETY: as above; the caller's reference is used no more.
    let uncounted = unsafe { &mut *uncounted };
    let (before, packets) = uncounted.held();
    if packets != 0
        && let Some(meter) = KernelMaps.meter(&before)
    {
        home::count_drops(&meter, packets);
    }
    uncounted.begin(&Source::from_word(source, version));
    0
}
