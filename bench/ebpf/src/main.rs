//! Programs that the benchmark measures limiter with and against. Never shipped.
//!
//! `empty` is the least that a program can do; `reference` is the least that a limiter by source
//! does: it reads the clock, parses, and looks one source up in a map like limiter's.
//! `keyed_reference` does so for a rule by port and source: it parses to the port, and looks up one
//! key of 16 bytes; [`charging`] charges such keys, too, and [`newcomer`] meets sources that nobody
//! has seen. [`paced`] is measured beside limiter on a cable, and [`tc`] is what a cable costs
//! there without any of them.

#![no_std]
#![no_main]
#![expect(internal_features, reason = "compare-and-exchange exists on BPF only as an intrinsic")]
#![feature(core_intrinsics)]

mod charging;
mod newcomer;
mod paced;
mod tc;

use aya_ebpf::{
    bindings::xdp_action,
    btf_maps::HashMap,
    helpers::bpf_ktime_get_ns,
    macros::{btf_map, xdp},
    programs::XdpContext,
};
use limiter_common::wire::Bucket;

limiter_tests_ebpf::licence!();

/// As limiter's map of IPv4 sources.
#[btf_map]
static REFERENCE_V4: HashMap<[u8; 4], Bucket, 262_144> = HashMap::new();

/// As limiter's map of IPv6 sources.
#[btf_map]
static REFERENCE_V6: HashMap<[u8; 8], Bucket, 262_144> = HashMap::new();

/// Keys of rules by port and source: address, port, protocol, and the number of the table; of IPv6
/// the /64, port and protocol in one word, and the number.
#[btf_map]
static REFERENCE_KEYED: HashMap<[u32; 4], Bucket, 65_536> = HashMap::new();

const ETHERTYPE: usize = 12;
const V4: [u8; 2] = [0x08, 0x00];
const V6: [u8; 2] = [0x86, 0xdd];
const VLAN: [u8; 2] = [0x81, 0x00];
const TAG: usize = 4;
const NETWORK: usize = 14;
/// Offset of the source in the IP header, by family.
const SOURCE_V4: usize = 12;
const SOURCE_V6: usize = 8;
/// Offsets behind the beginning of an IPv4 header without options.
const PROTOCOL: usize = 9;
const DESTINATION_PORT: usize = 22;
const NEXT_HEADER: usize = 6;
const DESTINATION_PORT_V6: usize = 42;
const TCP: u8 = 6;
const UDP: u8 = 17;

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

/// Drops a source at a port whose time has not come; lets all others pass. IPv4 without options,
/// and IPv6 without extension headers.
#[xdp(frags)]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn keyed_reference(ctx: XdpContext) -> u32 {
    // SAFETY: the helper takes no pointer and reads the monotonic clock.
    let now = unsafe { bpf_ktime_get_ns() };
    let Some(key) = port_and_source(&ctx) else {
        return xdp_action::XDP_PASS;
    };
    // SAFETY: the word is read once.
    match unsafe { REFERENCE_KEYED.get(key) } {
        Some(bucket) if bucket.word > now => xdp_action::XDP_DROP,
        _ => xdp_action::XDP_PASS,
    }
}

/// The key of a packet in the first table, if it is IPv4 without options, or IPv6 without extension
/// headers.
#[inline(always)]
fn port_and_source(ctx: &XdpContext) -> Option<[u32; 4]> {
    let (start, end) = (ctx.data(), ctx.data_end());
    if start + NETWORK + DESTINATION_PORT + 2 > end {
        return None;
    }
    let network = start + NETWORK;
    // SAFETY: the comparison is the proof that the verifier asks for; arrays of bytes have no
    // alignment.
    let (ethertype, version, protocol, source, port) = unsafe {
        (
            ((start + ETHERTYPE) as *const [u8; 2]).read(),
            (network as *const u8).read(),
            ((network + PROTOCOL) as *const u8).read(),
            ((network + SOURCE_V4) as *const [u8; 4]).read(),
            ((network + DESTINATION_PORT) as *const [u8; 2]).read(),
        )
    };
    if ethertype == V6 {
        return port_and_prefix(start, end);
    }
    if ethertype != V4 || version != 0x45 {
        return None;
    }
    let port = u16::from_be_bytes(port);
    Some([u32::from_ne_bytes(source), port.into(), protocol.into(), 0])
}

/// The key of a packet of IPv6 in the first table.
#[inline(always)]
fn port_and_prefix(start: usize, end: usize) -> Option<[u32; 4]> {
    if start + NETWORK + DESTINATION_PORT_V6 + 2 > end {
        return None;
    }
    let network = start + NETWORK;
    // SAFETY: the comparison is the proof that the verifier asks for; arrays of bytes have no
    // alignment.
    let (protocol, high, low, port) = unsafe {
        (
            ((network + NEXT_HEADER) as *const u8).read(),
            ((network + SOURCE_V6) as *const [u8; 4]).read(),
            ((network + SOURCE_V6 + 4) as *const [u8; 4]).read(),
            ((network + DESTINATION_PORT_V6) as *const [u8; 2]).read(),
        )
    };
    if protocol != UDP && protocol != TCP {
        return None;
    }
    let port = u32::from(u16::from_be_bytes(port)) | u32::from(protocol) << 16;
    Some([u32::from_ne_bytes(high), u32::from_ne_bytes(low), port, 0])
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
