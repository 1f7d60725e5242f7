//! The kernel's clock: [`limiter_common::clock`].

use aya_ebpf::{
    btf_maps::PerCpuArray,
    helpers::{bpf_jiffies64, bpf_ktime_get_ns},
    macros::btf_map,
};
use limiter_common::clock::Clock;
use limiter_common::time::Ticks;

/// The last reading of each CPU. Written and read here alone.
#[btf_map]
static READING: PerCpuArray<Clock, 1> = PerCpuArray::new();

/// The time at the beginning of a packet: now, or a little before.
#[inline(always)]
pub(crate) fn recent() -> Ticks {
    let Some(reading) = READING.get_ptr_mut(0) else {
        return exact(Ticks::ZERO);
    };
    // SAFETY: the helper takes no pointer; the verifier makes one read of it.
    let tick = unsafe { bpf_jiffies64() };
    // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
    unsafe { &mut *reading }.recent(tick, || exact(Ticks::ZERO))
}

/// The time now.
#[inline(always)]
pub(crate) fn exact(_recent: Ticks) -> Ticks {
    // SAFETY: the helper takes no pointer and reads the monotonic clock.
    Ticks::from_nanos(unsafe { bpf_ktime_get_ns() })
}
