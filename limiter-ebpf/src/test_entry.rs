//! Where a packet of a test comes in: the clock is read from a map, so that days pass in microseconds, and the facts of the
//! last frame are left in a map.

use aya_ebpf::{
    bindings::xdp_md,
    btf_maps::{Array, PerCpuArray},
    macros::{btf_map, xdp},
    programs::XdpContext,
};
use limiter_common::packet::{self, Facts};
use limiter_common::time::Ticks;

use crate::frame::Frame;
use crate::run;

/// The time in nanoseconds, at index 0. Written by the test.
#[btf_map]
static CLOCK: Array<u64, 1> = Array::new();

/// The facts of the last frame on this CPU that had any, at index 0. Written here, read by the test.
#[btf_map]
static FACTS: PerCpuArray<Facts, 1> = PerCpuArray::new();

/// [`NO_REASON`] when the last frame on this CPU has facts, else the index of the reason why not, at
/// index 0. Written here, read by the test.
#[btf_map]
static EXEMPT: PerCpuArray<u64, 1> = PerCpuArray::new();

/// The value in [`EXEMPT`] for a frame with facts.
const NO_REASON: u64 = u64::MAX;

/// A flood from this CPU, at index 0: `packets` left of it. Written by the test, counted down here.
#[btf_map]
static FLOOD: PerCpuArray<Flood, 1> = PerCpuArray::new();

/// One system call, many packets: each is from another source, and comes a step later.
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
}

/// Odd, so that a product with it is another number for each of 2^32 sources.
const SPREAD: u32 = 0x9e37_79b1;

/// The time of the frame in ticks. In a flood it gets another source first: it must be IPv4 without a tag.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_time(ctx: *mut xdp_md) -> u64 {
    let ctx = XdpContext::new(ctx);
    let Some(flood) = FLOOD.get_ptr_mut(0) else {
        return 0;
    };
    // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
    let flood = unsafe { &mut *flood };
    if flood.packets == 0 {
        return Ticks::from_nanos(CLOCK.get(0).copied().unwrap_or(0)).get();
    }
    flood.packets -= 1;
    flood.now += flood.step;
    flood.number += 1;
    let address = ((flood.number & 0xffff_ffff) as u32).wrapping_mul(SPREAD);
    let place = ctx.data() + SOURCE_AT;
    if place + size_of::<u32>() <= ctx.data_end() {
        // SAFETY: the comparison is the proof that the verifier asks for.
        unsafe { (place as *mut u32).write_unaligned(address) };
    }
    Ticks::from_nanos(flood.now).get()
}

/// Where IPv4 has its source, in an Ethernet frame without a tag.
const SOURCE_AT: usize = 14 + 12;

/// Leaves what the frame says in the maps.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_record(ctx: *mut xdp_md) -> u32 {
    record::<false>(ctx)
}

/// The same of a frame without an Ethernet header.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_record_l3(ctx: *mut xdp_md) -> u32 {
    record::<true>(ctx)
}

#[inline(always)]
fn record<const LAYER_3: bool>(ctx: *mut xdp_md) -> u32 {
    let (Some(last), Some(exempt)) = (FACTS.get_ptr_mut(0), EXEMPT.get_ptr_mut(0)) else {
        return 0;
    };
    // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
    let last = unsafe { &mut *last };
    let context = XdpContext::new(ctx);
    let frame = Frame::<LAYER_3>::new(&context);
    let reason = match packet::facts(&frame, last) {
        Ok(()) => {
            packet::inner(&frame, last);
            NO_REASON
        }
        Err(reason) => u64::from(reason.index()),
    };
    // SAFETY: as above.
    unsafe { *exempt = reason };
    0
}

/// Judges one frame at the time that [`CLOCK`] tells.
#[xdp(frags)]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn limiter(ctx: XdpContext) -> u32 {
    limiter_record(ctx.ctx);
    run::run::<false>(&ctx, || Ticks::new(limiter_time(ctx.ctx)))
}

/// The same for frames without an Ethernet header.
#[xdp(frags)]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn limiter_l3(ctx: XdpContext) -> u32 {
    limiter_record_l3(ctx.ctx);
    run::run::<true>(&ctx, || Ticks::new(limiter_time(ctx.ctx)))
}
