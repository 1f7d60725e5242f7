//! One packet, from frame to verdict.

use aya_ebpf::{bindings::xdp_action, programs::XdpContext};
use aya_log_ebpf::debug;
use limiter_common::engine::{self, Packed};
use limiter_common::time::Ticks;

use crate::frame::Frame;
use crate::maps::{self, KernelMaps};
use crate::tables::KernelSteps;

/// Judges the frame and counts it.
#[inline(always)]
pub(crate) fn run(ctx: &XdpContext, now: impl FnOnce() -> Ticks) -> u32 {
    let frame = Frame::new(ctx);
    let length = frame.length();
    let outcome = engine::judge(&KernelMaps, &KernelSteps(ctx), &frame, length, now());
    limiter_count(outcome.raw(), length);
    // The level is a load-time constant: the verifier removes this when it is off.
    debug!(ctx, "outcome {} length {}", outcome.raw(), length);
    if outcome.drops() { xdp_action::XDP_DROP } else { xdp_action::XDP_PASS }
}

/// A function of its own, so that the verifier walks it once.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_count(outcome: u64, length: u64) -> u32 {
    maps::count(&Packed::from_raw(outcome).unpack(), length);
    0
}
