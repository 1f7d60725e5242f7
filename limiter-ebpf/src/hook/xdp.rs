//! The XDP hook: frames as a driver receives them, before the kernel makes an skb.

use aya_ebpf::bindings::{xdp_action, xdp_md};
use aya_ebpf::helpers::bpf_xdp_get_buff_len;
use aya_ebpf::helpers::generated::{bpf_xdp_adjust_tail, bpf_xdp_load_bytes, bpf_xdp_store_bytes};
use aya_ebpf::programs::XdpContext;
use limiter_common::header::Direction;
use limiter_common::wire::Control;
use limiter_decision::maps::Maps as _;

use crate::call::call;
use crate::maps::Kernel;
use crate::maps::definitions::THEN;
use crate::maps::members::bond_of;

pub(crate) type Context = xdp_md;

pub(crate) const PASS: u32 = xdp_action::XDP_PASS;

pub(crate) const DROP: u32 = xdp_action::XDP_DROP;

/// No frame stands for several packets here.
pub(crate) const SUPER_FRAMES: bool = false;

/// No frame waits here.
pub(crate) const DELAYS: bool = false;

#[inline(always)]
pub(crate) const fn direction() -> Direction {
    Direction::In
}

/// The VLAN tag that is not in the frame's bytes. XDP is never shown one.
#[inline(always)]
pub(crate) const fn tag(_: *mut Context) -> Option<u16> {
    None
}

/// The beginning of the frame's linear part.
#[inline(always)]
pub(crate) fn data(ctx: *mut Context) -> usize {
    XdpContext::new(ctx).data()
}

/// The end of the frame's linear part.
#[inline(always)]
pub(crate) fn data_end(ctx: *mut Context) -> usize {
    XdpContext::new(ctx).data_end()
}

/// Bytes in the buffer, including all fragments. Computing `data_end - data` instead would need
/// `CAP_PERFMON`: the verifier rejects pointer subtraction without it.
#[inline(always)]
pub(crate) fn length(ctx: *mut Context) -> u64 {
    // SAFETY: the context pointer is the one that the kernel passed.
    unsafe { bpf_xdp_get_buff_len(ctx) }
}

/// The index of the interface by which the frame came in; for a member of a bond, the bond's index.
#[inline(always)]
pub(crate) fn interface(ctx: *mut Context) -> u32 {
    // SAFETY: the context pointer is the one that the kernel passed.
    let index = unsafe { (*ctx).ingress_ifindex };
    if Kernel.control(Control::Members) == 0 { index } else { call!(bond_of(; index)) }
}

/// Copies bytes from anywhere in the frame; false if they do not exist.
///
/// # Safety
///
/// There must be space for them.
#[inline(always)]
pub(crate) unsafe fn load(ctx: *mut Context, offset: u32, to: *mut u8, bytes: u32) -> bool {
    // SAFETY: the context is the kernel's; the caller guarantees the rest.
    unsafe { bpf_xdp_load_bytes(ctx, offset, to.cast(), bytes) == 0 }
}

/// Writes bytes to the frame; false if it has no such bytes.
///
/// # Safety
///
/// So many bytes must be readable.
#[inline(always)]
pub(crate) unsafe fn store(ctx: *mut Context, offset: u32, from: *const u8, bytes: u32) -> bool {
    // SAFETY: the context is the kernel's; the helper only reads the caller's bytes.
    unsafe { bpf_xdp_store_bytes(ctx, offset, from.cast_mut().cast(), bytes) == 0 }
}

/// Cuts the frame from `of` to `length` bytes.
#[inline(always)]
pub(crate) fn cut(ctx: *mut Context, length: u32, of: u32) -> bool {
    let change = length.wrapping_sub(of).cast_signed();
    // SAFETY: the context is the kernel's, which checks the rest.
    unsafe { bpf_xdp_adjust_tail(ctx, change) == 0 }
}

/// Calls the program of `--then` for a frame that passes. If the call returns, there is no such
/// program, or it cannot be called. Not a subprogram, because a subprogram has too much on the
/// stack for a tail call.
#[inline(always)]
pub(crate) fn go_on(ctx: *mut Context) {
    // SAFETY: a successful call never returns, and no value here needs to be dropped.
    unsafe { THEN.tail_call(&XdpContext::new(ctx), 0) }
}

/// The verdict for a frame that has become an answer: back to where it came from.
#[inline(always)]
pub(crate) const fn answered(_: *mut Context) -> u32 {
    xdp_action::XDP_TX
}
