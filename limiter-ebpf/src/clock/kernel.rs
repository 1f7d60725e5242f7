//! The kernel's clock: [`limiter_decision::clock`].

use aya_ebpf::{
    btf_maps::PerCpuArray,
    helpers::{bpf_jiffies64, bpf_ktime_get_ns},
    macros::btf_map,
};
use limiter_common::time::Ticks;
use limiter_decision::clock::Clock as Reading;

use crate::context::Frame;
use crate::maps::{Clock, Kernel};

/// The last reading of each CPU. Only written and read here.
#[btf_map]
static READING: PerCpuArray<Reading, 1> = PerCpuArray::new();

impl Clock for Kernel {
    #[inline(always)]
    fn recent<const LAYER_3: bool>(&self, _frame: &Frame<LAYER_3>) -> Ticks {
        let Some(reading) = READING.get_ptr_mut(0) else {
            return exact();
        };
        // SAFETY: the helper takes no pointer; the verifier replaces it by a read.
        let tick = unsafe { bpf_jiffies64() };
        // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
        let reading = unsafe { &mut *reading };
        if let Some(time) = reading.again(tick) {
            return time;
        }
        let time = exact();
        *reading = Reading::new(time, tick);
        time
    }

    #[inline(always)]
    fn read(&self, _recent: Ticks) -> Ticks {
        exact()
    }
}

#[inline(always)]
fn exact() -> Ticks {
    // SAFETY: the helper takes no pointer and reads the monotonic clock.
    Ticks::from_nanos(unsafe { bpf_ktime_get_ns() })
}
