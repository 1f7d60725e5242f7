//! The test program: the same decision, the clock read from a map, so that days pass in
//! microseconds. Never shipped.

#![no_std]
#![no_main]
#![expect(internal_features, reason = "compare-and-exchange exists on BPF only as an intrinsic")]
#![feature(core_intrinsics)]

mod atomic;
mod frame;
mod maps;
mod run;

use aya_ebpf::{btf_maps::Array, macros::btf_map, macros::xdp, programs::XdpContext};
use limiter_common::time::Ticks;

/// The time in nanoseconds, at index 0. Written by the test.
#[btf_map]
static CLOCK: Array<u64, 1> = Array::new();

/// Judges one frame at the time that [`CLOCK`] tells.
#[xdp(frags)]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn limiter(ctx: XdpContext) -> u32 {
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
