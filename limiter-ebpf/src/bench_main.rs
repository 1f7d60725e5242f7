//! What the benchmark measures limiter with and against. Never shipped.
//!
//! `walk` gives each run of `BPF_PROG_TEST_RUN` another source, and calls a program as it is. `empty` is the least that
//! one can do; `reference` is the least that a limiter by source does: it reads the clock, parses, and looks one source
//! up in a map like limiter's. [`paced`] is what limiter is measured beside on a cable.

#![no_std]
#![no_main]
#![expect(internal_features, reason = "compare-and-exchange exists on BPF only as an intrinsic")]
#![feature(core_intrinsics)]

mod bench_lines;
mod licence;
mod paced;

use aya_ebpf::{
    bindings::xdp_action,
    btf_maps::{Array, HashMap, ProgramArray},
    helpers::bpf_ktime_get_ns,
    macros::{btf_map, xdp},
    programs::XdpContext,
};
use limiter_common::wire::Bucket;

/// How sources follow one another. Written by the benchmark, and `state` here.
#[repr(C)]
struct Walk {
    /// The state of the random numbers, or the number of the last source.
    state: u64,
    /// How many sources there are.
    sources: u32,
    /// The first one: an IPv4 address, or the lower half of an IPv6 /64.
    first: u32,
    /// 1 for one after the other, 0 at random.
    in_turn: u32,
    /// Where in the frame they stand: 26 in IPv4 and in IPv6, 30 behind a VLAN tag.
    offset: u32,
}

#[btf_map]
static WALK: Array<Walk, 1> = Array::new();

/// The program that is called, at index 0.
#[btf_map]
static PROGRAM: ProgramArray<1> = ProgramArray::new();

/// As limiter's map of IPv4 sources.
#[btf_map]
static REFERENCE_V4: HashMap<[u8; 4], Bucket, 262_144> = HashMap::new();

/// As limiter's map of IPv6 sources.
#[btf_map]
static REFERENCE_V6: HashMap<[u8; 8], Bucket, 262_144> = HashMap::new();

const ETHERTYPE: usize = 12;
const V4: [u8; 2] = [0x08, 0x00];
const V6: [u8; 2] = [0x86, 0xdd];
const VLAN: [u8; 2] = [0x81, 0x00];
const TAG: usize = 4;
const NETWORK: usize = 14;
/// Behind the beginning of the IP header.
const SOURCE_V4: usize = 12;
const SOURCE_V6: usize = 8;
const UNTAGGED: u32 = 26;
const TAGGED: u32 = 30;

/// Knuth's, for the upper bits.
const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
const INCREMENT: u64 = 1_442_695_040_888_963_407;

/// Writes the next source into the frame and goes on with the program.
#[xdp(frags)]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn walk(ctx: XdpContext) -> u32 {
    let Some(walk) = WALK.get_ptr_mut(0) else { return xdp_action::XDP_ABORTED };
    // SAFETY: a value of the array, alive as long as the program; one CPU walks.
    let walk = unsafe { &mut *walk };
    let number = if walk.in_turn == 0 {
        walk.state = walk.state.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
        // As many as there are, without a division.
        (((walk.state >> 32) * u64::from(walk.sources)) >> 32) as u32
    } else {
        walk.state = walk.state.wrapping_add(1);
        (walk.state & 0xffff_ffff) as u32
    };
    let source = walk.first.wrapping_add(number).to_be();
    let written = match walk.offset {
        UNTAGGED => write::<{ UNTAGGED as usize }>(&ctx, source),
        TAGGED => write::<{ TAGGED as usize }>(&ctx, source),
        _ => false,
    };
    if written {
        // SAFETY: nothing is left to do here.
        unsafe { PROGRAM.tail_call(&ctx, 0) };
    }
    xdp_action::XDP_ABORTED
}

#[inline(always)]
fn write<const OFFSET: usize>(ctx: &XdpContext, source: u32) -> bool {
    let place = ctx.data() + OFFSET;
    if place + size_of::<u32>() > ctx.data_end() {
        return false;
    }
    // SAFETY: the comparison is the proof that the verifier asks for.
    unsafe { (place as *mut u32).write_unaligned(source) };
    true
}

/// Drops.
#[xdp(frags)]
pub(crate) fn empty(_ctx: XdpContext) -> u32 {
    xdp_action::XDP_DROP
}

/// Drops a source whose time has not come; lets all others pass.
#[xdp(frags)]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn reference(ctx: XdpContext) -> u32 {
    // SAFETY: the helper takes no pointer and reads the monotonic clock.
    let now = unsafe { bpf_ktime_get_ns() };
    let bucket = match read::<ETHERTYPE, 2>(&ctx) {
        Some(VLAN) => match read::<{ ETHERTYPE + TAG }, 2>(&ctx) {
            Some(ethertype) => find::<{ NETWORK + TAG }>(&ctx, ethertype),
            None => None,
        },
        Some(ethertype) => find::<NETWORK>(&ctx, ethertype),
        None => None,
    };
    match bucket {
        Some(bucket) if bucket.word > now => xdp_action::XDP_DROP,
        _ => xdp_action::XDP_PASS,
    }
}

/// The source of an IPv4 packet.
#[inline(always)]
pub(crate) fn source_v4(ctx: &XdpContext) -> Option<[u8; 4]> {
    match (read::<ETHERTYPE, 2>(ctx), read::<NETWORK, 1>(ctx)) {
        (Some(V4), Some([0x45])) => read_at(ctx, NETWORK + SOURCE_V4),
        _ => None,
    }
}

/// The bucket of the source of a packet whose IP header is there.
#[inline(always)]
fn find<const NETWORK: usize>(ctx: &XdpContext, ethertype: [u8; 2]) -> Option<&'static Bucket> {
    match ethertype {
        V4 => match (read_at(ctx, NETWORK), read_at(ctx, NETWORK + SOURCE_V4)) {
            // SAFETY: the word is read once.
            (Some([0x45]), Some(source)) => unsafe { REFERENCE_V4.get(source) },
            _ => None,
        },
        V6 => match read_at(ctx, NETWORK + SOURCE_V6) {
            // SAFETY: as above.
            Some(source) => unsafe { REFERENCE_V6.get(source) },
            None => None,
        },
        _ => None,
    }
}

#[inline(always)]
fn read<const OFFSET: usize, const N: usize>(ctx: &XdpContext) -> Option<[u8; N]> {
    read_at(ctx, OFFSET)
}

/// The `N` bytes at `offset`, which is a constant once this is inlined.
#[inline(always)]
fn read_at<const N: usize>(ctx: &XdpContext, offset: usize) -> Option<[u8; N]> {
    let start = ctx.data() + offset;
    if start + N > ctx.data_end() {
        return None;
    }
    // SAFETY: the comparison is the proof that the verifier asks for; `[u8; N]` has no alignment.
    Some(unsafe { (start as *const [u8; N]).read() })
}
