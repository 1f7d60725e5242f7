//! The programs for XDP, and their specific parts above the context.

use aya_ebpf::bindings::xdp_action;
use aya_ebpf::programs::XdpContext;
use limiter_common::frame_size::FrameSize;
use limiter_common::wire::ActionKind;
use limiter_decision::maps::Maps as _;

use crate::context::Frame;
use crate::hook::{self, PASS};
use crate::maps::Kernel;
use crate::maps::definitions::{CPUS, INTERFACES};
use crate::path;

/// Judges one frame.
#[aya_ebpf::macros::xdp(frags)]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn limiter(ctx: XdpContext) -> u32 {
    path::run(&Frame::<false>::new(ctx.ctx))
}

/// Judges one frame of an interface without Ethernet headers.
#[aya_ebpf::macros::xdp(frags)]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn limiter_l3(ctx: XdpContext) -> u32 {
    path::run(&Frame::<true>::new(ctx.ctx))
}

/// The size of a frame: it is one packet.
#[inline(always)]
pub(crate) fn size<const LAYER_3: bool>(frame: &Frame<LAYER_3>) -> FrameSize {
    FrameSize::of_packet(hook::length(frame.context()))
}

/// Frames do not wait here.
#[inline(always)]
pub(crate) const fn delay<const LAYER_3: bool>(_: &Frame<LAYER_3>) -> u32 {
    PASS
}

/// The verdict for a redirected packet: by the map of its action, or to the network stack if the
/// map has no such entry.
#[inline(always)]
pub(crate) fn redirect(action: u32) -> u32 {
    let Some(action) = Kernel.action(action) else {
        return PASS;
    };
    let way = match action.kind() {
        ActionKind::Interface => INTERFACES.redirect(action.target, ELSE_PASS),
        ActionKind::Cpu => CPUS.redirect(action.target, ELSE_PASS),
        _ => return PASS,
    };
    // After this match the verifier knows the bound of the number.
    match way {
        Ok(xdp_action::XDP_REDIRECT) | Err(xdp_action::XDP_REDIRECT) => xdp_action::XDP_REDIRECT,
        _ => PASS,
    }
}

/// Flag of a redirection: pass if the map has no such entry.
const ELSE_PASS: u64 = PASS as u64;
