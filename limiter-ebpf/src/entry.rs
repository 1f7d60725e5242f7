//! Where a packet comes in, by the kernel's clock.

use aya_ebpf::programs::XdpContext;

use crate::xdp;

/// Judges one frame.
#[aya_ebpf::macros::xdp(frags)]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn limiter(ctx: XdpContext) -> u32 {
    xdp::run::<false>(&ctx)
}

/// Judges one frame of an interface without Ethernet headers.
#[aya_ebpf::macros::xdp(frags)]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn limiter_l3(ctx: XdpContext) -> u32 {
    xdp::run::<true>(&ctx)
}
