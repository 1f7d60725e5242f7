//! One packet, from frame to verdict.

use aya_ebpf::{bindings::xdp_action, programs::XdpContext};
use aya_log_ebpf::debug;
use limiter_common::engine;
use limiter_common::time::Ticks;
use limiter_common::verdict::Verdict;

use crate::frame::Frame;
use crate::maps::{self, KernelMaps};
use crate::tables::KernelSteps;

/// Judges the frame and counts it.
#[inline(always)]
pub(crate) fn run(ctx: &XdpContext, now: impl FnOnce() -> Ticks) -> u32 {
    let frame = Frame::new(ctx);
    let length = frame.length();
    let outcome = engine::judge(&KernelMaps, &KernelSteps(ctx), &frame, length, now());
    let verdict = outcome.reason.verdict();
    maps::count(&outcome, length);
    // The level is a load-time constant: the verifier removes this when it is off.
    debug!(ctx, "reason {} rule {} length {}", outcome.reason.index(), outcome.rule, length);
    match verdict {
        Verdict::Pass => xdp_action::XDP_PASS,
        Verdict::Drop => xdp_action::XDP_DROP,
    }
}
