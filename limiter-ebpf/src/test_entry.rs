//! Where a packet of a test comes in: the facts of the last frame are left in a map.

use aya_ebpf::{btf_maps::PerCpuArray, macros::btf_map, programs::XdpContext};
use limiter_common::packet::{self, Facts};

use crate::step::{define_steps, step};
use crate::world::frame::Frame;
use crate::xdp;

/// The steps of the test program.
macro_rules! own_steps {
    ($made:ident) => {
        $made! {
            record = crate::test_entry::record, () (twin);
        }
    };
}

own_steps!(define_steps);

/// The steps of the test program as BPF functions.
#[cfg(target_arch = "bpf")]
mod call {
    use limiter_common::declare_steps;

    own_steps!(declare_steps);
}

/// The facts of the last frame on this CPU that had any, at index 0. Written here, read by the
/// test.
#[btf_map]
static FACTS: PerCpuArray<Facts, 1> = PerCpuArray::new();

/// [`NO_REASON`] when the last frame on this CPU has facts, else the index of the reason why not,
/// at index 0. Written here, read by the test.
#[btf_map]
static EXEMPT: PerCpuArray<u64, 1> = PerCpuArray::new();

/// The value in [`EXEMPT`] for a frame with facts.
const NO_REASON: u64 = u64::MAX;

/// Leaves what the frame says in the maps.
#[inline(always)]
pub(crate) fn record<const LAYER_3: bool>(frame: &Frame<LAYER_3>) {
    let (Some(last), Some(exempt)) = (FACTS.get_ptr_mut(0), EXEMPT.get_ptr_mut(0)) else {
        return;
    };
    // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
    let last = unsafe { &mut *last };
    let reason = match packet::facts(frame, last) {
        Ok(()) => {
            packet::inner(frame, last);
            NO_REASON
        }
        Err(reason) => u64::from(reason.index()),
    };
    // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
    unsafe { *exempt = reason };
}

/// Judges one frame at the time that the clock of tests tells.
#[aya_ebpf::macros::xdp(frags)]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn limiter(ctx: XdpContext) -> u32 {
    step!(here record(; &Frame::<false>::new(ctx.ctx)));
    xdp::run::<false>(&ctx)
}

/// Judges one frame without an Ethernet header at the time that the clock of tests tells.
#[aya_ebpf::macros::xdp(frags)]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn limiter_l3(ctx: XdpContext) -> u32 {
    step!(here record(; &Frame::<true>::new(ctx.ctx)));
    xdp::run::<true>(&ctx)
}
