//! The shipped XDP program: the clock is the kernel's.

#![no_std]
#![no_main]
#![expect(internal_features, reason = "compare-and-exchange exists on BPF only as an intrinsic")]
#![feature(core_intrinsics, asm_experimental_arch)]

mod act;
mod atomic;
mod events;
mod frame;
mod keyed;
mod limits;
mod maps;
mod room;
mod room_keyed;
mod run;
mod sources;
mod tables;
mod words;

use aya_ebpf::{helpers::bpf_ktime_get_ns, macros::xdp, programs::XdpContext};
use limiter_common::time::Ticks;

/// Judges one frame.
#[xdp(frags)]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn limiter(ctx: XdpContext) -> u32 {
    // SAFETY: the helper takes no pointer and reads the monotonic clock.
    run::run::<false>(&ctx, || Ticks::from_nanos(unsafe { bpf_ktime_get_ns() }))
}

/// Judges one frame of an interface without Ethernet headers.
#[xdp(frags)]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn limiter_l3(ctx: XdpContext) -> u32 {
    // SAFETY: the helper takes no pointer and reads the monotonic clock.
    run::run::<true>(&ctx, || Ticks::from_nanos(unsafe { bpf_ktime_get_ns() }))
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
