//! The least that a limiter does about a source that it has no entry for, with a memory of who was
//! seen: the clock, the header, a look-up that finds nobody in a map of limiter's size, and one
//! word of as many fingerprints as limiter has, read and written. It refuses nobody, and asks no
//! rule.

use aya_ebpf::{
    bindings::xdp_action,
    btf_maps::{Array, HashMap},
    helpers::bpf_ktime_get_ns,
    macros::{btf_map, xdp},
    programs::XdpContext,
};
use limiter_common::wire::{Bucket, FINGERPRINTS};

use crate::{ETHERTYPE, NETWORK, SOURCE_V4, V4, read};

/// Of the size of limiter's map of IPv4 sources where new ones find it full. The benchmark leaves
/// it empty: a look-up ends at the head of the chain, sooner than in limiter's.
#[btf_map]
static SMALL_V4: HashMap<[u8; 4], Bucket, 16_384> = HashMap::new();

#[btf_map]
static SEEN: Array<u64, { FINGERPRINTS as usize }> = Array::new();

/// Odd number near 2^64 over the golden ratio: Knuth, The Art of Computer Programming, volume 3,
/// section 6.4, multiplicative hashing.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Drops a source that was seen in this half second; lets all others pass.
#[xdp(frags)]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn newcomer(ctx: XdpContext) -> u32 {
    // SAFETY: the helper takes no pointer and reads the monotonic clock.
    let now = unsafe { bpf_ktime_get_ns() };
    if read::<ETHERTYPE, 2>(&ctx) != Some(V4) || read::<NETWORK, 1>(&ctx) != Some([0x45]) {
        return xdp_action::XDP_PASS;
    }
    let Some(source) = read::<{ NETWORK + SOURCE_V4 }, 4>(&ctx) else {
        return xdp_action::XDP_PASS;
    };
    // SAFETY: the word is read once.
    if let Some(bucket) = unsafe { SMALL_V4.get(source) } {
        return if bucket.word > now { xdp_action::XDP_DROP } else { xdp_action::XDP_PASS };
    }
    let hash = u64::from(u32::from_be_bytes(source)).wrapping_mul(SPREAD);
    // The upper bits: all bits of the address have changed them.
    let index = (hash >> 32) as u32 & (FINGERPRINTS - 1);
    let Some(word) = SEEN.get_ptr_mut(index) else {
        return xdp_action::XDP_PASS;
    };
    let seen = (hash & 0xffff_ffff_ffff_0000) | (now >> 29 & 0xffff);
    // SAFETY: a value of the map, which the kernel keeps alive for this run and aligns to 8 bytes.
    unsafe {
        if word.read_volatile() == seen {
            return xdp_action::XDP_DROP;
        }
        word.write_volatile(seen);
    }
    xdp_action::XDP_PASS
}
