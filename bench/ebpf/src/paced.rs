//! A limiter by IPv4 address as one would write it by hand: the clock, the header, one look-up in a
//! hash map, and one word changed by compare-and-exchange (GCRA). Once for XDP, twice for tc: by
//! source for what comes in, by destination for what goes out. It has no rules, no counters, no
//! IPv6, and lets pass what finds no room.

use core::intrinsics::{AtomicOrdering, atomic_cxchg};

use aya_ebpf::{
    bindings::{BPF_NOEXIST, TC_ACT_OK, TC_ACT_SHOT, xdp_action},
    btf_maps::{Array, HashMap},
    helpers::bpf_ktime_get_ns,
    macros::{btf_map, classifier, xdp},
    programs::{TcContext, XdpContext},
};

/// The limit of every address, in nanoseconds. Written by the benchmark.
#[repr(C)]
struct Pace {
    cost: u64,
    /// How far ahead of the clock an address may be and send or get one more.
    tolerance: u64,
}

#[btf_map]
static PACE: Array<Pace, 1> = Array::new();

/// When each address will owe nothing. Its size is set by who loads it.
#[btf_map]
static PACED: HashMap<[u8; 4], u64, 16> = HashMap::new();

/// Ethernet and a plain IPv4 header.
const HEADERS: usize = 34;
const ETHERTYPE: usize = 12;
const VERSION: usize = 14;
const SOURCE: usize = 26;
const DESTINATION: usize = 30;
const IPV4: [u8; 2] = [0x08, 0x00];

/// A try fails only because another CPU has charged the same address.
const TRIES: u32 = 4;

/// Drops what is over the limit of its source.
#[xdp(frags)]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn paced_xdp(ctx: XdpContext) -> u32 {
    if over::<SOURCE>(ctx.data(), ctx.data_end()) {
        xdp_action::XDP_DROP
    } else {
        xdp_action::XDP_PASS
    }
}

/// Limits at tc ingress: behind the driver, on an skb.
#[classifier]
#[expect(clippy::needless_pass_by_value, reason = "the classifier macro passes the context so")]
pub(crate) fn paced_tc(ctx: TcContext) -> i32 {
    if over::<SOURCE>(ctx.data(), ctx.data_end()) { TC_ACT_SHOT } else { TC_ACT_OK }
}

/// Limits what goes out, by where it goes.
#[classifier]
#[expect(clippy::needless_pass_by_value, reason = "the classifier macro passes the context so")]
pub(crate) fn paced_tc_out(ctx: TcContext) -> i32 {
    if over::<DESTINATION>(ctx.data(), ctx.data_end()) { TC_ACT_SHOT } else { TC_ACT_OK }
}

/// True if the address at an offset of the packet is over its limit; charges it if not.
#[inline(always)]
fn over<const ADDRESS: usize>(start: usize, end: usize) -> bool {
    // SAFETY: the helper takes no pointer and reads the monotonic clock.
    let now = unsafe { bpf_ktime_get_ns() };
    if start + HEADERS > end {
        return false;
    }
    // SAFETY: the comparison is the proof that the verifier asks for; arrays of bytes have no
    // alignment.
    let (ethertype, version, address) = unsafe {
        (
            ((start + ETHERTYPE) as *const [u8; 2]).read(),
            ((start + VERSION) as *const u8).read(),
            ((start + ADDRESS) as *const [u8; 4]).read(),
        )
    };
    if ethertype != IPV4 || version != 0x45 {
        return false;
    }
    let Some(pace) = PACE.get(0) else { return false };
    let Some(word) = PACED.get_ptr_mut(address) else {
        // Another CPU may have been faster, or there is no room: it passes.
        let _inserted = PACED.insert(address, now + pace.cost, BPF_NOEXIST.into());
        return false;
    };
    for _ in 0..TRIES {
        // SAFETY: a value of the map, which the kernel keeps alive for this run and aligns to 8
        // bytes.
        let owed = unsafe { word.read_volatile() };
        let from = if owed > now { owed } else { now };
        if from - now > pace.tolerance {
            return true;
        }
        // SAFETY: as above.
        let (_, stored) = unsafe {
            atomic_cxchg::<u64, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(
                word,
                owed,
                from + pace.cost,
            )
        };
        if stored {
            return false;
        }
    }
    true
}
