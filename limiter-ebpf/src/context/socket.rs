//! The connections of this host.

use aya_ebpf::bindings::bpf_sock_tuple;
use aya_ebpf::helpers::generated::{bpf_sk_lookup_tcp, bpf_sk_release};
use limiter_common::header::Version;
use limiter_decision::packet::Facts;

use super::Frame;

/// `BPF_F_CURRENT_NETNS`: the network namespace of the interface.
const THIS_NETNS: u64 = u64::MAX;

/// `BPF_TCP_ESTABLISHED`.
const ESTABLISHED: u32 = 1;

/// The part of `bpf_sock_tuple` for IPv4, in network order.
#[repr(C)]
struct TupleV4 {
    source: [u8; 4],
    destination: [u8; 4],
    source_port: u16,
    destination_port: u16,
}

/// The part of `bpf_sock_tuple` for IPv6, in network order.
#[repr(C, align(4))]
struct TupleV6 {
    source: [u8; 16],
    destination: [u8; 16],
    source_port: u16,
    destination_port: u16,
}

const _: () = assert!(size_of::<TupleV4>() == 12 && size_of::<TupleV6>() == 36);

/// The length of an address tuple, as a helper takes it.
#[expect(clippy::cast_possible_truncation, reason = "12 or 36")]
const fn size_of_tuple<T>() -> u32 {
    size_of::<T>() as u32
}

/// True if this host has an established TCP connection with the addresses and ports of the packet.
#[inline(always)]
pub(crate) fn is_established<const LAYER_3: bool>(facts: &Facts, frame: &Frame<LAYER_3>) -> bool {
    let Some(ports) = facts.ports() else { return false };
    let (source_port, destination_port) = (ports.source.to_be(), ports.destination.to_be());
    let (from, to) = (facts.source_address(), facts.destination_address());
    match facts.version() {
        Version::V4 => {
            let [.., a, b, c, d] = from;
            let source = [a, b, c, d];
            let [.., a, b, c, d] = to;
            let destination = [a, b, c, d];
            lookup(frame, TupleV4 { source, destination, source_port, destination_port })
        }
        Version::V6 => {
            lookup(frame, TupleV6 { source: from, destination: to, source_port, destination_port })
        }
    }
}

/// Looks up a connection. `T` is one of the two tuples.
#[inline(always)]
fn lookup<T, const LAYER_3: bool>(frame: &Frame<LAYER_3>, mut tuple: T) -> bool {
    let (ctx, place) = (frame.context().cast(), (&raw mut tuple).cast::<bpf_sock_tuple>());
    // SAFETY: the helper reads only the given number of bytes of the tuple. It returns null, or a
    // socket that is ours until it is released, which the verifier enforces.
    unsafe {
        let socket = bpf_sk_lookup_tcp(ctx, place, size_of_tuple::<T>(), THIS_NETNS, 0);
        if socket.is_null() {
            return false;
        }
        let state = (&raw const (*socket).state).read_volatile();
        bpf_sk_release(socket.cast());
        state == ESTABLISHED
    }
}
