//! Gives each run of `BPF_PROG_TEST_RUN` another source, and goes on with a program as it is. Never
//! shipped.

#![no_std]
#![no_main]

use aya_ebpf::{
    bindings::xdp_action,
    btf_maps::{Array, ProgramArray},
    macros::{btf_map, xdp},
    programs::XdpContext,
};

limiter_tests_ebpf::licence!();

/// How sources follow one another. Written by the harness, and `state` here.
#[repr(C)]
struct Walk {
    /// The state of the random numbers, or the number of the last source.
    state: u64,
    sources: u32,
    /// The first one: an IPv4 address, or the lower half of an IPv6 /64.
    first: u32,
    /// 1 for one after the other, 0 at random.
    in_turn: u32,
    /// Offset of the addresses in the frame: 26 in IPv4 and in IPv6, 30 behind a VLAN tag.
    offset: u32,
}

#[btf_map]
static WALK: Array<Walk, 1> = Array::new();

/// The program that is called, at index 0.
#[btf_map]
static PROGRAM: ProgramArray<1> = ProgramArray::new();

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
