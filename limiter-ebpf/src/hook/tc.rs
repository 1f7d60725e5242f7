//! The tc hook (TCX, or a filter of clsact): incoming skbs after generic receive offload, and
//! outgoing skbs before they are split.

use aya_ebpf::Global;
use aya_ebpf::bindings::{__sk_buff, TC_ACT_SHOT, TC_ACT_UNSPEC};
use aya_ebpf::helpers::generated::{
    bpf_redirect, bpf_skb_change_tail, bpf_skb_load_bytes, bpf_skb_set_tstamp, bpf_skb_store_bytes,
};
use limiter_common::header::Direction;
use limiter_decision::packet::Segments;

pub(crate) type Context = __sk_buff;

/// The verdict for an skb that passes: the next program runs (`TCX_NEXT`).
pub(crate) const PASS: u32 = TC_ACT_UNSPEC.cast_unsigned();

pub(crate) const DROP: u32 = TC_ACT_SHOT.cast_unsigned();

/// Skbs may be super-frames.
pub(crate) const SUPER_FRAMES: bool = true;

/// Skbs can wait, in the queueing discipline behind this hook.
pub(crate) const DELAYS: bool = true;

/// 1 if the program is attached for outgoing packets. Set by the loader, so that the verifier
/// removes the code for the other direction.
#[unsafe(no_mangle)]
static OUT: Global<u32> = Global::new(0);

/// `BPF_F_RECOMPUTE_CSUM`: the checksum kept for the card follows what is written.
const RECOMPUTE_CHECKSUM: u64 = 1;

/// `BPF_SKB_TSTAMP_DELIVERY_MONO`: a departure time, which survives a redirection.
const DELIVERY_MONO: u32 = 1;

#[inline(always)]
pub(crate) fn direction() -> Direction {
    if OUT.load() == 0 { Direction::In } else { Direction::Out }
}

/// The VLAN tag that is not in the packet's bytes.
#[inline(always)]
pub(crate) fn tag(ctx: *mut Context) -> Option<u16> {
    // SAFETY: the context pointer is the one that the kernel passed.
    let (present, tci) = unsafe { ((*ctx).vlan_present, (*ctx).vlan_tci) };
    if present == 0 { None } else { Some((tci & 0xffff) as u16) }
}

/// The beginning of the skb's linear part.
#[inline(always)]
pub(crate) fn data(ctx: *mut Context) -> usize {
    // SAFETY: the context pointer is the one that the kernel passed.
    unsafe { (*ctx).data as usize }
}

/// The end of the skb's linear part.
#[inline(always)]
pub(crate) fn data_end(ctx: *mut Context) -> usize {
    // SAFETY: the context pointer is the one that the kernel passed.
    unsafe { (*ctx).data_end as usize }
}

/// Bytes in the buffer, all fragments included.
#[inline(always)]
pub(crate) fn length(ctx: *mut Context) -> u64 {
    // SAFETY: the context pointer is the one that the kernel passed.
    unsafe { (*ctx).len.into() }
}

/// The segments that an skb stands for if it is a super-frame.
#[inline(always)]
pub(crate) fn segments(ctx: *mut Context) -> Option<Segments> {
    // SAFETY: the context pointer is the one that the kernel passed.
    let (count, size) = unsafe { ((*ctx).gso_segs, (*ctx).gso_size) };
    if size == 0 { None } else { Some(Segments { count, size }) }
}

/// The index of the interface by which the skb came in or goes out.
#[inline(always)]
pub(crate) fn interface(ctx: *mut Context) -> u32 {
    // SAFETY: the context pointer is the one that the kernel passed.
    unsafe { (*ctx).ifindex }
}

/// Copies bytes from anywhere in the skb; false if they do not exist.
///
/// # Safety
///
/// There must be space for them.
#[inline(always)]
pub(crate) unsafe fn load(ctx: *mut Context, offset: u32, to: *mut u8, bytes: u32) -> bool {
    // SAFETY: the context is the kernel's; the caller guarantees the rest.
    unsafe { bpf_skb_load_bytes(ctx.cast_const().cast(), offset, to.cast(), bytes) == 0 }
}

/// Writes bytes to the skb; false if it has no such bytes.
///
/// # Safety
///
/// So many bytes must be readable.
#[inline(always)]
pub(crate) unsafe fn store(ctx: *mut Context, offset: u32, from: *const u8, bytes: u32) -> bool {
    // SAFETY: the context is the kernel's; the helper only reads the caller's bytes.
    unsafe { bpf_skb_store_bytes(ctx, offset, from.cast(), bytes, RECOMPUTE_CHECKSUM) == 0 }
}

/// Cuts the skb to `length` bytes. The kernel refuses to cut a super-frame.
#[inline(always)]
pub(crate) fn cut(ctx: *mut Context, length: u32, _of: u32) -> bool {
    // SAFETY: the context is the kernel's, which checks the rest.
    unsafe { bpf_skb_change_tail(ctx, length, 0) == 0 }
}

/// Sets the earliest departure time, for which `fq` waits, in nanoseconds of the monotonic clock:
/// the later of `departure` and the time set by the sender's own pacing.
#[inline(always)]
pub(crate) fn delay(ctx: *mut Context, departure: u64) {
    // SAFETY: the context pointer is the one that the kernel passed.
    unsafe {
        if departure > (*ctx).tstamp {
            (*ctx).tstamp = departure;
        }
    }
}

/// Sends an incoming skb through the `ifb` with this index, whose `fq` holds it until its departure
/// time and returns it after this hook. Returns the verdict, which is [`PASS`] for an skb that
/// cannot wait because the kernel takes it for neither IPv4 nor IPv6.
#[inline(always)]
pub(crate) fn hold(ctx: *mut Context, departure: u64, ifb: u32) -> u32 {
    // SAFETY: the context is the kernel's, which checks the rest; the other helper takes numbers.
    unsafe {
        if bpf_skb_set_tstamp(ctx, departure, DELIVERY_MONO) == 0 {
            low(bpf_redirect(ifb, 0))
        } else {
            PASS
        }
    }
}

/// The verdict in the answer of a helper.
#[inline(always)]
#[expect(clippy::cast_sign_loss, reason = "the lower half is the verdict")]
const fn low(answer: i64) -> u32 {
    (answer & 0xffff_ffff) as u32
}

/// The kernel itself runs the next program at tc.
#[inline(always)]
pub(crate) const fn go_on(_: *mut Context) {}

/// The verdict for an skb that has become an answer: sent by the interface by which it came in.
#[inline(always)]
pub(crate) fn answered(ctx: *mut Context) -> u32 {
    // SAFETY: the helper takes two numbers.
    low(unsafe { bpf_redirect(interface(ctx), 0) })
}
