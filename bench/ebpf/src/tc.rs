//! The bare ways of a packet at tc, beside which a limiter is measured there: a drop, and on to the
//! kernel's routing, which sends it back to its source.

use aya_ebpf::{
    bindings::{TC_ACT_OK, TC_ACT_SHOT},
    helpers::bpf_skb_change_type,
    macros::classifier,
    programs::TcContext,
};

/// Ethernet and a plain IPv4 header.
const HEADERS: usize = 34;
const SOURCE: usize = 26;
const DESTINATION: usize = 30;
const TTL: usize = 22;

/// The address that the generator sends to.
const RECEIVER: [u8; 4] = [192, 0, 2, 254];

/// Of include/uapi/linux/if_packet.h.
const PACKET_HOST: u32 = 0;

/// The least that drops a packet at tc.
#[classifier]
pub(crate) fn empty_tc(_ctx: TcContext) -> i32 {
    TC_ACT_SHOT
}

/// Makes the source of a packet of IPv4 its destination, since the generator chooses the sources,
/// and has it routed. A redirection from here would be quicker, and nft's egress hook does not see
/// what is redirected.
///
/// The generator's frames come again, and it writes their sources and checksums alone: what routing
/// and this program have changed in them, this program puts right.
#[classifier]
#[expect(clippy::needless_pass_by_value, reason = "the classifier macro passes the context so")]
pub(crate) fn turn(ctx: TcContext) -> i32 {
    let (start, end) = (ctx.data(), ctx.data_end());
    if start + HEADERS > end {
        return TC_ACT_OK;
    }
    // SAFETY: the comparison is the proof that the verifier asks for; arrays of bytes have no
    // alignment.
    unsafe {
        let source = (start + SOURCE) as *mut [u8; 4];
        ((start + DESTINATION) as *mut [u8; 4]).write(source.read());
        source.write(RECEIVER);
        ((start + TTL) as *mut u8).write(64);
    }
    // SAFETY: the kernel passes a context that is valid for this run. Routing has given the frame
    // another station's address.
    unsafe { bpf_skb_change_type(ctx.skb.skb, PACKET_HOST) };
    TC_ACT_OK
}
