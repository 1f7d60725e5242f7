//! The frame under the program's pointer: the only pointer arithmetic.

use aya_ebpf::{bindings::xdp_md, helpers::bpf_xdp_get_buff_len, programs::XdpContext};
use limiter_common::packet::Bytes;

/// The linear part of a frame.
pub(crate) struct Frame<'a>(&'a XdpContext);

impl<'a> Frame<'a> {
    #[inline(always)]
    pub(crate) fn new(ctx: &'a XdpContext) -> Self {
        Self(ctx)
    }

    /// The whole length, all fragments included. Computing `data_end - data` instead would need
    /// `CAP_PERFMON`: the verifier refuses pointer subtraction to the unprivileged.
    #[inline(always)]
    pub(crate) fn length(&self) -> u64 {
        let ctx: *mut xdp_md = self.0.ctx;
        // SAFETY: the context pointer is the one that the kernel passed.
        unsafe { bpf_xdp_get_buff_len(ctx) }
    }
}

impl Bytes for Frame<'_> {
    #[inline(always)]
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let start = self.0.data() + offset;
        if start + N > self.0.data_end() {
            return None;
        }
        // SAFETY: the comparison above is the proof that the verifier asks for; `[u8; N]` has no
        // alignment.
        Some(unsafe { (start as *const [u8; N]).read() })
    }
}
