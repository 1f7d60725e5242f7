//! A limiter by port and source as one would write it by hand, with as many tables as there are
//! rules: the clock, the header to the port, and for each table one look-up in a hash map, one word
//! changed by compare-and-exchange (GCRA) and one counter. It has no rules, makes no keys, and
//! charges the tables before one that refuses.

use core::intrinsics::{AtomicOrdering, atomic_cxchg, atomic_xadd};

use aya_ebpf::{
    bindings::xdp_action, helpers::bpf_ktime_get_ns, macros::xdp, programs::XdpContext,
};

use crate::{REFERENCE_KEYED, port_and_source};

/// Cost of a packet, in nanoseconds: 100 million a second.
const COST: u64 = 10;

/// Nanoseconds that a key may be ahead of the clock and send one more: a burst of a million.
const TOLERANCE: u64 = 1_000_000 * COST;

#[xdp(frags)]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn charging_1(ctx: XdpContext) -> u32 {
    charge::<1>(&ctx)
}

#[xdp(frags)]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn charging_4(ctx: XdpContext) -> u32 {
    charge::<4>(&ctx)
}

#[xdp(frags)]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn charging_8(ctx: XdpContext) -> u32 {
    charge::<8>(&ctx)
}

/// Looks up and charges the packet's key of each table. A key that is not there, or that another
/// CPU charges meanwhile, does not count: the frames of the benchmark have all, and one CPU runs.
#[inline(always)]
fn charge<const TABLES: u32>(ctx: &XdpContext) -> u32 {
    // SAFETY: the helper takes no pointer and reads the monotonic clock.
    let now = unsafe { bpf_ktime_get_ns() };
    let Some(mut key) = port_and_source(ctx) else {
        return xdp_action::XDP_PASS;
    };
    for table in 0..TABLES {
        key[3] = table;
        let Some(bucket) = REFERENCE_KEYED.get_ptr_mut(key) else {
            return xdp_action::XDP_PASS;
        };
        // SAFETY: a value of the map, which the kernel keeps alive for this run and aligns to 8
        // bytes. The fields are changed by atomic instructions alone.
        unsafe {
            let word = &raw mut (*bucket).word;
            let owed = word.read_volatile();
            let from = if owed > now { owed } else { now };
            if from - now > TOLERANCE {
                return xdp_action::XDP_DROP;
            }
            let _ = atomic_cxchg::<u64, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(
                word,
                owed,
                from + COST,
            );
            let _ =
                atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(&raw mut (*bucket).passed, 1);
        }
    }
    xdp_action::XDP_PASS
}
