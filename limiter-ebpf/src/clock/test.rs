//! The clock of the test program. It also writes the facts of each frame into a map, for the test.
//! The shipped clock uses one reading for several packets; in tests each packet has its own time:
//! from a map, or in a flood, the next step.

use aya_ebpf::{
    btf_maps::{Array, PerCpuArray},
    macros::btf_map,
};
use limiter_common::time::Ticks;
use limiter_decision::packet::{self, Facts};

use crate::call::call;
use crate::context::Frame;
use crate::define_subprograms::define_subprograms;
use crate::hook;
use crate::maps::{Clock, Kernel};

/// The subprograms of this clock.
macro_rules! own_subprograms {
    ($made:ident) => {
        $made! {
            time = crate::clock::test::time, () (frame);
            record = crate::clock::test::record, () (twin);
        }
    };
}

own_subprograms!(define_subprograms);

/// The subprograms of this clock as BPF functions.
#[cfg(target_arch = "bpf")]
mod call {
    use limiter_decision::declare_subprograms;

    own_subprograms!(declare_subprograms);
}

/// The facts of the last frame on this CPU that had any, at index 0. Written here, read by the
/// test.
#[btf_map]
static FACTS: PerCpuArray<Facts, 1> = PerCpuArray::new();

/// [`NO_REASON`] if the last frame on this CPU has facts, otherwise the index of the reason why
/// not, at index 0. Written here, read by the test.
#[btf_map]
static EXEMPT: PerCpuArray<u64, 1> = PerCpuArray::new();

/// The value in [`EXEMPT`] for a frame with facts.
const NO_REASON: u64 = u64::MAX;

/// Writes the facts of the frame into the maps.
#[inline(always)]
pub(crate) fn record<const LAYER_3: bool>(frame: &Frame<LAYER_3>) {
    let (Some(last), Some(exempt)) = (FACTS.get_ptr_mut(0), EXEMPT.get_ptr_mut(0)) else {
        return;
    };
    // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
    let last = unsafe { &mut *last };
    let reason = match packet::facts(frame, last) {
        Ok(()) => {
            packet::inner(frame, last);
            NO_REASON
        }
        Err(reason) => u64::from(reason.index()),
    };
    // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
    unsafe { *exempt = reason };
}

/// The time in nanoseconds, at index 0. Written by the test.
#[btf_map]
static CLOCK: Array<u64, 1> = Array::new();

/// A flood from this CPU, at index 0: `packets` remain. Written by the test, counted down here.
#[btf_map]
static FLOOD: PerCpuArray<Flood, 1> = PerCpuArray::new();

/// The time of the current frame in ticks, at index 0. Only written and read here.
#[btf_map]
static NOW: PerCpuArray<u64, 1> = PerCpuArray::new();

/// Many packets in one system call, each a step later than the last. `block` sources send one after
/// the other, and repeat that until each has sent `times`; then other sources follow.
#[repr(C)]
struct Flood {
    /// Packets left; 0 for none.
    packets: u64,
    /// The time of the next one in nanoseconds.
    now: u64,
    /// Nanoseconds from one to the next.
    step: u64,
    /// The number of the next one.
    number: u64,
    /// Sources that send in turn.
    block: u64,
    times: u64,
    /// Bytes of the address that all sources share, as in the frame.
    net: u32,
    /// The bits in which sources differ.
    hosts: u32,
}

/// Odd, so that its products differ for all of 2^32 sources.
const SPREAD: u32 = 0x9e37_79b1;

/// The time of the frame in ticks. Stores it for [`Clock::now`].
#[inline(always)]
pub(crate) fn time<const LAYER_3: bool>(frame: &Frame<LAYER_3>) -> Ticks {
    let now = time_of_maps(frame);
    if let Some(kept) = NOW.get_ptr_mut(0) {
        // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
        unsafe { *kept = now.get() };
    }
    now
}

/// The time from the maps. In a flood, first gives the frame another source: it must be IPv4
/// without a tag.
#[inline(always)]
fn time_of_maps<const LAYER_3: bool>(frame: &Frame<LAYER_3>) -> Ticks {
    let Some(flood) = FLOOD.get_ptr_mut(0) else {
        return Ticks::ZERO;
    };
    // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
    let flood = unsafe { &mut *flood };
    if flood.packets == 0 {
        return Ticks::from_nanos(CLOCK.get(0).copied().unwrap_or(0));
    }
    flood.packets -= 1;
    flood.now += flood.step;
    flood.number += 1;
    let Flood { number, block, times, net, hosts, .. } = *flood;
    let group = number.checked_div(block.wrapping_mul(times)).unwrap_or(0);
    let source = group.wrapping_mul(block).wrapping_add(number.checked_rem(block).unwrap_or(0));
    let address = ((source & 0xffff_ffff) as u32).wrapping_mul(SPREAD) & hosts | net;
    let place = hook::data(frame.context()) + SOURCE_AT;
    if place + size_of::<u32>() <= hook::data_end(frame.context()) {
        // SAFETY: the comparison is the proof that the verifier needs.
        unsafe { (place as *mut u32).write_unaligned(address) };
    }
    Ticks::from_nanos(flood.now)
}

/// The offset of the IPv4 source, in an Ethernet frame without a tag.
const SOURCE_AT: usize = 14 + 12;

impl Clock for Kernel {
    #[inline(always)]
    fn recent<const LAYER_3: bool>(&self, frame: &Frame<LAYER_3>) -> Ticks {
        call!(here record(; frame));
        call!(here time(; frame))
    }

    /// Reads the time again, as the shipped program does: keeping a time would take stack, which
    /// would then differ from the shipped program.
    #[inline(always)]
    fn read(&self, _recent: Ticks) -> Ticks {
        NOW.get(0).map_or(Ticks::ZERO, |now| Ticks::new(*now))
    }
}
