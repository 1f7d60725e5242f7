//! One packet, from frame to verdict.

use aya_ebpf::{
    bindings::{xdp_action, xdp_md},
    programs::XdpContext,
};
use aya_log_ebpf::debug;
use aya_log_ebpf::macro_support::{Level, level_enabled};
use limiter_common::engine::{self, Packed};
use limiter_common::table::Steps as _;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;

use crate::act;
use crate::events;
use crate::frame::Frame;
use crate::maps::{self, KernelMaps};
use crate::tables::KernelSteps;

/// Judges the frame, carries out what follows, and counts it. With `LAYER_3`, it begins with its IP
/// header. `now` is the time, or a little before: [`limiter_common::clock`].
#[inline(always)]
pub(crate) fn run<const LAYER_3: bool>(ctx: &XdpContext, now: impl FnOnce() -> Ticks) -> u32 {
    let length = Frame::<LAYER_3>::new(ctx).length();
    let now = now().get();
    let gate = if LAYER_3 { limiter_gate_l3 } else { limiter_gate };
    let gate = Packed::from_raw(gate(ctx.ctx, length, now));
    let Some(tables) = gate.tables() else {
        count(gate, length);
        events::tell::<LAYER_3>(ctx, gate, length, now, events::FACTS_UNKNOWN);
        return pass_or_drop(gate);
    };
    let mut outcome = KernelSteps::<LAYER_3>(ctx.ctx).drive(tables);
    if outcome.action() != 0 {
        outcome = Packed::from_raw(act::limiter_act(ctx.ctx, outcome.raw()));
    }
    count(outcome, length);
    // The frame may be an answer by now; what it said is in the scratch.
    events::tell::<LAYER_3>(ctx, outcome, length, now, events::FACTS_KNOWN);
    if outcome.is(Reason::Rejected) {
        return xdp_action::XDP_TX;
    }
    // What another interface would send without an Ethernet header, nobody could read.
    if outcome.is(Reason::Redirected) && !LAYER_3 {
        return act::limiter_redirect(outcome.action());
    }
    pass_or_drop(outcome)
}

#[inline(always)]
fn pass_or_drop(outcome: Packed) -> u32 {
    if outcome.drops() { xdp_action::XDP_DROP } else { xdp_action::XDP_PASS }
}

/// [`engine::gate`]. A function of its own, so that the frame of the program stays small: its
/// callees share 512 bytes of stack with it.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_gate(ctx: *mut xdp_md, length: u64, now: u64) -> u64 {
    gate::<false>(ctx, length, now)
}

/// The same for frames without an Ethernet header.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_gate_l3(ctx: *mut xdp_md, length: u64, now: u64) -> u64 {
    gate::<true>(ctx, length, now)
}

#[inline(always)]
fn gate<const LAYER_3: bool>(ctx: *mut xdp_md, length: u64, now: u64) -> u64 {
    let context = XdpContext::new(ctx);
    let frame = Frame::<LAYER_3>::new(&context);
    let steps = KernelSteps::<LAYER_3>(ctx);
    engine::gate(&KernelMaps, &steps, &frame, length, Ticks::new(now)).raw()
}

/// Counts the packet and logs it. Without a log, which is a load-time constant, the verifier removes the call.
#[inline(always)]
fn count(outcome: Packed, length: u64) {
    maps::count(&outcome.unpack(), length);
    if level_enabled(Level::Debug) {
        limiter_log(outcome.raw(), length);
    }
}

/// A function of its own: its buffers are not to be on the stack of those who do not log.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_log(outcome: u64, length: u64) -> u32 {
    let outcome = Packed::from_raw(outcome).unpack();
    // The log goes to a ring buffer and asks for no context.
    debug!((), "reason {} rule {} length {}", outcome.reason.index(), outcome.rule, length);
    0
}
