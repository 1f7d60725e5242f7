//! Where a packet comes in, by the kernel's clock.

use aya_ebpf::{macros::xdp, programs::XdpContext};

use crate::clock;
use crate::run;

/// Judges one frame.
#[xdp(frags)]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn limiter(ctx: XdpContext) -> u32 {
    run::run::<false>(&ctx, clock::recent)
}

/// Judges one frame of an interface without Ethernet headers.
#[xdp(frags)]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn limiter_l3(ctx: XdpContext) -> u32 {
    run::run::<true>(&ctx, clock::recent)
}
