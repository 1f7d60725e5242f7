//! The packets that may be answered: RFC 1122, 3.2.2; RFC 1812, 4.3.2.7; RFC 4443, 2.4 (e); RFC
//! 9293, 3.10.7.1. A reason stands beside each test that these do not ask for.

use limiter_common::header::{Fragment, RST, Reach, Version};
use network_types::ip::IpProto;

use super::ReplyKind;
use super::ip::{V4_HEADER, V6_HEADER};
use crate::packet::Facts;

const TCP: u8 = IpProto::Tcp as u8;
const ICMP: u8 = IpProto::Icmp as u8;
const ICMPV6: u8 = IpProto::Ipv6Icmp as u8;

/// The type of an echo request (RFC 792).
const ECHO_REQUEST_V4: u8 = 8;
/// The type of an echo request (RFC 4443, 4.1).
const ECHO_REQUEST_V6: u8 = 128;

/// The bit of a link address for more than one receiver. Broadcast has it, too.
const GROUP: u8 = 1;

/// The kind of answer to a packet that is over its limit, `None` when it must stay without an
/// answer. `link` is the first twelve bytes of its Ethernet header.
///
/// | not answered | because |
/// |---|---|
/// | no Ethernet header | there is no link address to send it back to |
/// | link address of a group, as destination or source | every host would answer; no host sends from one |
/// | fragments, the first one included | only later ones are forbidden, but the rest of the packet would still come |
/// | IPv4 options, an authentication header | the quote would end before the transport header |
/// | IPv6 extension headers | the same; atomic fragments are among them |
/// | transport header not reached | nothing is known of it: it may be an error |
/// | source or destination that no single host has | an answer would go to many, to nobody, or claim to come from there |
/// | source is the destination | it would answer itself |
/// | ICMP other than an echo request | errors must not be answered, and unknown types may be some |
/// | ICMP of the other IP version | it has no meaning |
/// | TCP with RST | resets must not be answered |
///
/// Broadcast addresses of a subnet and anycast addresses look like those of a host. Of the former
/// the link address shows it, on the link that they belong to.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn eligible(facts: &Facts, link: &[u8; 12]) -> Option<ReplyKind> {
    let [to, _, _, _, _, _, from, ..] = *link;
    if (to | from) & GROUP != 0 || facts.network_offset() == 0 {
        return None;
    }
    if !matches!((facts.reach(), facts.fragment()), (Reach::Transport, Fragment::Whole)) {
        return None;
    }
    let header = match facts.version() {
        Version::V4 => V4_HEADER,
        Version::V6 => V6_HEADER,
    };
    if usize::from(facts.transport_offset()?) != usize::from(facts.network_offset()) + header {
        return None;
    }
    let source = halves(facts.source_address());
    let destination = halves(facts.destination_address());
    let between_hosts = match facts.version() {
        Version::V4 => is_v4_host(source) && is_v4_host(destination),
        Version::V6 => is_v6_host(source) && is_v6_host(destination),
    };
    if !between_hosts || source == destination {
        return None;
    }
    answer(facts)
}

/// The kind of answer, by the protocol of the packet.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn answer(facts: &Facts) -> Option<ReplyKind> {
    let (unreachable, reset, echo_request) = match facts.version() {
        Version::V4 => (ReplyKind::UnreachableV4, ReplyKind::ResetV4, ECHO_REQUEST_V4),
        Version::V6 => (ReplyKind::UnreachableV6, ReplyKind::ResetV6, ECHO_REQUEST_V6),
    };
    match facts.protocol()? {
        TCP if facts.tcp_flags()? & RST != 0 => None,
        TCP => Some(reset),
        // ICMP of the other IP version has no type here.
        ICMP | ICMPV6 if facts.icmp()?.kind != echo_request => None,
        _ => Some(unreachable),
    }
}

/// An address as two numbers, high half first: compared like this, it costs no call in BPF.
#[cfg_attr(target_arch = "bpf", inline(always))]
#[expect(clippy::many_single_char_names, reason = "the bytes of an address have no better names")]
const fn halves(address: [u8; 16]) -> (u64, u64) {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = address;
    (u64::from_be_bytes([a, b, c, d, e, f, g, h]), u64::from_be_bytes([i, j, k, l, m, n, o, p]))
}

/// True for addresses that a host can have: not "this network" (0/8), loopback (127/8), multicast
/// (224/4), reserved (240/4) or the limited broadcast within that. The address is IPv4-mapped, as
/// in [`Facts::source_address`].
#[cfg_attr(target_arch = "bpf", inline(always))]
const fn is_v4_host((_, mapped): (u64, u64)) -> bool {
    let first = mapped >> 24 & 0xff;
    first != 0 && first != 127 && first < 224
}

/// True for addresses that a host can have: not unspecified (`::`), loopback (`::1`), multicast
/// (`ff00::/8`) or IPv4-mapped (`::ffff:0:0/96`), which stands for IPv4 inside of a host (RFC 4291,
/// 2.5.5.2).
#[cfg_attr(target_arch = "bpf", inline(always))]
const fn is_v6_host((high, low): (u64, u64)) -> bool {
    let special = high == 0 && (low <= 1 || low >> 32 == 0xffff);
    !special && high >> 56 != 0xff
}
