//! The programs for tc, and their specific parts above the context.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::programs::TcContext;
use limiter_common::frame_size::FrameSize;
use limiter_common::header::Direction;
use limiter_common::wire::Control;
use limiter_decision::maps::Maps as _;
use limiter_decision::table::Scratch;

use crate::call::call;
use crate::context::Frame;
use crate::define_subprograms::define_subprograms;
use crate::facts::facts;
use crate::hook::{self, Context, PASS};
use crate::maps::{self, Kernel};
use crate::path;

/// Bytes of a VLAN tag.
const TAG: u64 = 4;

/// Judges one skb.
#[aya_ebpf::macros::classifier]
#[expect(clippy::needless_pass_by_value, reason = "the macro passes the context so")]
pub(crate) fn limiter(ctx: TcContext) -> i32 {
    path::run(&Frame::<false>::new(ctx.as_ptr().cast())).cast_signed()
}

/// Judges one skb of an interface without Ethernet headers.
#[aya_ebpf::macros::classifier]
#[expect(clippy::needless_pass_by_value, reason = "the macro passes the context so")]
pub(crate) fn limiter_l3(ctx: TcContext) -> i32 {
    path::run(&Frame::<true>::new(ctx.as_ptr().cast())).cast_signed()
}

/// The size of an skb: of the packets from which it was merged or into which it will be split.
#[inline(always)]
pub(crate) fn size<const LAYER_3: bool>(frame: &Frame<LAYER_3>) -> FrameSize {
    let ctx = frame.context();
    if hook::segments(ctx).is_some() {
        return call!(here super_frame(; frame));
    }
    FrameSize::of_packet(length(ctx))
}

/// Bytes of the skb, including a tag that is not in its bytes.
#[inline(always)]
fn length(ctx: *mut Context) -> u64 {
    let tag = if hook::tag(ctx).is_some() { TAG } else { 0 };
    hook::length(ctx).wrapping_add(tag)
}

#[inline(always)]
pub(crate) fn super_frame<const LAYER_3: bool>(frame: &Frame<LAYER_3>) -> FrameSize {
    let ctx = frame.context();
    let length = length(ctx);
    let Some(segments) = hook::segments(ctx) else {
        return FrameSize::of_packet(length);
    };
    match maps::scratch() {
        Some(scratch) if facts(frame) => segments.size_of(frame, &scratch.facts, length),
        _ => FrameSize::of_super_frame(length, segments.count, 0),
    }
}

/// Delays a passing packet until it conforms. Returns its verdict.
#[inline(always)]
pub(crate) fn delay<const LAYER_3: bool>(frame: &Frame<LAYER_3>) -> u32 {
    let Some(departure) = maps::scratch().and_then(Scratch::departure) else {
        return PASS;
    };
    let departure = departure.as_nanos_rounded_up();
    if matches!(hook::direction(), Direction::Out) {
        hook::delay(frame.context(), departure);
        return PASS;
    }
    let ifb = (Kernel.control(Control::Ifb) & 0xffff_ffff) as u32;
    // The kernel sends no frame without an Ethernet header to an ifb.
    if ifb == 0 || LAYER_3 { PASS } else { hook::hold(frame.context(), departure, ifb) }
}

/// The verdict for a redirected packet. It never occurs, because rules that redirect are rejected
/// at tc.
#[inline(always)]
pub(crate) const fn redirect(_action: u32) -> u32 {
    PASS
}

/// The subprograms of this hook.
macro_rules! own_subprograms {
    ($made:ident) => {
        $made! {
            super_frame = crate::program::tc::super_frame, () (twin);
        }
    };
}

own_subprograms!(define_subprograms);

/// The subprograms of this hook as BPF functions.
#[cfg(target_arch = "bpf")]
mod call {
    use limiter_decision::declare_subprograms;

    own_subprograms!(declare_subprograms);
}
