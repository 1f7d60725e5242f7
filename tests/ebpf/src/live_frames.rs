//! Gives each frame that the kernel makes its source, and sends it when it is due. Never shipped.

#![no_std]
#![no_main]
#![expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]

use aya_ebpf::{
    bindings::xdp_action,
    btf_maps::Array,
    helpers::{bpf_ktime_get_ns, bpf_redirect},
    macros::{btf_map, xdp},
    programs::XdpContext,
};

limiter_tests_ebpf::licence!();

/// Groups of regular sources at most.
const GROUPS: usize = 5;

/// A load, and how far it is: `Live` of the harness, which says what each field is. Its times are
/// in parts of a nanosecond: [`FRACTION`].
#[repr(C)]
struct Live {
    frames: u64,
    period: u64,
    choice: u32,
    of: u32,
    family: u32,
    spread: u32,
    mask: u32,
    base: u32,
    sum: u32,
    interface: u32,
    block: u32,
    times: u32,
    sent: u64,
    due: u64,
    random: u64,
    runs: u64,
    groups: [Group; GROUPS],
}

/// Sources that send in turn, evenly spaced.
#[repr(C)]
struct Group {
    period: u64,
    first: u32,
    count: u32,
    sent: u64,
    due: u64,
}

#[btf_map]
static LIVE: Array<Live, 1> = Array::new();

/// Times are in 1/256 ns.
const FRACTION: u32 = 8;

/// Without a rate the clock, which costs as much as the rest, is read every so many runs.
const CLOCK_EVERY: u64 = 16;

/// Delay that is made up for after a stall, at most, in nanoseconds: that much of the load comes in
/// one burst. It must be longer than sending a batch takes.
const SLACK: u64 = 50_000;

/// Bits between the sources of a group: each IPv4 one is in a /24 of its own.
const REGULAR_APART: u32 = 8;

/// Behind Ethernet, IPv4 and UDP headers.
const PAYLOAD_V4: usize = 42;

/// Knuth's, for the upper bits.
const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
const INCREMENT: u64 = 1_442_695_040_888_963_407;

/// Writes the source of the next frame that is due and sends it; drops it when none is.
#[xdp]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn live_frames(ctx: XdpContext) -> u32 {
    let Some(live) = LIVE.get_ptr_mut(0) else { return xdp_action::XDP_ABORTED };
    // SAFETY: a value of the array, alive as long as the program; one CPU sends.
    let live = unsafe { &mut *live };
    let Some(word) = next(&ctx, live) else { return xdp_action::XDP_DROP };
    // The last bytes of the address and the header's checksum; bits 32 to 63 of the address and
    // UDP's checksum.
    let written = if live.family == 4 {
        write::<26, 24, false>(&ctx, word, live.sum)
    } else {
        write::<26, 60, true>(&ctx, word, live.sum)
    };
    if !written {
        return xdp_action::XDP_DROP;
    }
    // SAFETY: the helper takes any number.
    unsafe { bpf_redirect(live.interface, 0).cast_unsigned() as u32 }
}

/// The changing word of the next source, if one is to send now.
#[inline(always)]
fn next(ctx: &XdpContext, live: &mut Live) -> Option<u32> {
    let paced = live.period != 0;
    let mut looks = paced;
    if !paced && live.groups[0].count != 0 {
        live.runs = live.runs.wrapping_add(1);
        looks = live.runs.is_multiple_of(CLOCK_EVERY);
    }
    let mut now = 0;
    if looks {
        // SAFETY: the helper takes nothing.
        let nanos = unsafe { bpf_ktime_get_ns() };
        now = nanos << FRACTION;
        if let Some(word) = regular(live, now) {
            if live.family == 4 {
                stamp(ctx, nanos);
            }
            return Some(word);
        }
    }
    if live.sent >= live.frames || paced && !is_due(live, now) {
        return None;
    }
    let number = number(live);
    live.sent += 1;
    Some(number.wrapping_mul(live.spread) & live.mask | live.base)
}

/// The next source of the first group that is due. What is late is not made up for.
#[inline(always)]
fn regular(live: &mut Live, now: u64) -> Option<u32> {
    for group in &mut live.groups {
        let turn = group.sent.checked_rem(group.count.into())?;
        if group.due <= now {
            group.due = (group.due + group.period).max(now);
            group.sent += 1;
            return Some(group.first.wrapping_add((turn as u32) << REGULAR_APART));
        }
    }
    None
}

/// True if a frame is due. A delay of more than [`SLACK`] is not made up for.
#[inline(always)]
fn is_due(live: &mut Live, now: u64) -> bool {
    if live.due > now {
        return false;
    }
    live.due = live.due.max(now.saturating_sub(SLACK << FRACTION)) + live.period;
    true
}

/// The number of the frame's source.
#[inline(always)]
fn number(live: &mut Live) -> u32 {
    match live.choice {
        1 => random(live).0,
        2 => {
            // The part below the octave that the multiplication left says where in it: 2^octave - 1
            // and that part of it.
            let (octave, part) = random(live);
            (part.wrapping_shl(octave) >> 32) as u32 + 1_u32.wrapping_shl(octave) - 1
        }
        3 => live.of.wrapping_add(live.sent as u32),
        4 => {
            let (block, times) = (u64::from(live.block), u64::from(live.times));
            let round = live.sent.checked_div(block * times).unwrap_or(0);
            let number = round * block + live.sent.checked_rem(block).unwrap_or(0);
            live.of.wrapping_add(number as u32)
        }
        _ => 0,
    }
}

/// A random number under `of`, and how far it was to the next, of 2^32.
#[inline(always)]
fn random(live: &mut Live) -> (u32, u64) {
    live.random = live.random.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
    let product = (live.random >> 32).wrapping_mul(live.of.into());
    ((product >> 32) as u32, product & 0xffff_ffff)
}

/// Writes the time into the payload, if there is room for it. There is no checksum over it in IPv4.
#[inline(always)]
fn stamp(ctx: &XdpContext, nanos: u64) {
    let place = ctx.data() + PAYLOAD_V4;
    if place + size_of::<u64>() <= ctx.data_end() {
        // SAFETY: the comparison is the proof that the verifier asks for.
        unsafe { (place as *mut u64).write_unaligned(nanos) };
    }
}

/// Writes the word at a byte of the frame, and the checksum of it and of what else it is over.
#[inline(always)]
fn write<const ADDRESS: usize, const CHECKSUM: usize, const UDP: bool>(
    ctx: &XdpContext,
    word: u32,
    others: u32,
) -> bool {
    let start = ctx.data();
    if start + ADDRESS.max(CHECKSUM) + size_of::<u32>() > ctx.data_end() {
        return false;
    }
    let [upper, lower] = [(word >> 16) as u16, word as u16];
    let mut sum = others + u32::from(upper) + u32::from(lower);
    for _ in 0..2 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let mut checksum = !(sum as u16);
    if UDP && checksum == 0 {
        // Zero would say that there is none, which UDP over IPv6 must have.
        checksum = 0xffff;
    }
    let halves = [(ADDRESS, upper), (ADDRESS + 2, lower), (CHECKSUM, checksum)];
    for (at, half) in halves {
        // SAFETY: the comparison is the proof that the verifier asks for; frames begin at an even
        // address.
        unsafe { ((start + at) as *mut u16).write(half.to_be()) };
    }
    true
}
