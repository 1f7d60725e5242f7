//! The test program: the same decision, the clock read from a map, so that days pass in
//! microseconds, and the facts of the last frame left in a map. Never shipped.

#![no_std]
#![no_main]
#![expect(internal_features, reason = "compare-and-exchange exists on BPF only as an intrinsic")]
#![feature(core_intrinsics, asm_experimental_arch)]

mod act;
mod atomic;
mod frame;
mod keyed;
mod limits;
mod maps;
mod run;
mod tables;
mod words;

use aya_ebpf::{
    bindings::xdp_md,
    btf_maps::{Array, PerCpuArray},
    macros::{btf_map, xdp},
    programs::XdpContext,
};
use limiter_common::packet::{self, Facts};
use limiter_common::time::Ticks;

use crate::frame::Frame;

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

/// Leaves what the frame says in the maps.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_record(ctx: *mut xdp_md) -> u32 {
    let (Some(last), Some(exempt)) = (FACTS.get_ptr_mut(0), EXEMPT.get_ptr_mut(0)) else {
        return 0;
    };
    // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
    let last = unsafe { &mut *last };
    let reason = match packet::facts(&Frame::new(&XdpContext::new(ctx)), last) {
        Ok(()) => NO_REASON,
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
    run::run(&ctx, || Ticks::from_nanos(CLOCK.get(0).copied().unwrap_or(0)))
}

/// Lets the kernel hand out its GPL-only helpers.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // No code path reaches this: the verifier refuses a program with an endless loop.
    loop {}
}
