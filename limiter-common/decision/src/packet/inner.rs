//! The packet inside a tunnel: IPv4 and IPv6 in IP (RFC 2003, 2473, 4213), GRE (RFC 2784, 2890) and
//! VXLAN (RFC 7348).
//!
//! The inner packet is parsed only if a rule asks for it. Nothing in it decides whose bucket of the
//! source table is charged: the sender of the outer packet can write anything there.

use limiter_common::header::Version;

use super::ether::{self, Network};
use super::facts::Facts;
use super::{Bytes, protocol};
use crate::rounds::Rounds;

/// The port of VXLAN (IANA). Tunnels on other ports are not seen.
const VXLAN_PORT: u16 = 4789;

/// Headers of UDP and VXLAN.
const VXLAN_HEADERS: usize = 16;

/// The flag of VXLAN that says that there is a network identifier. It must be set.
const VXLAN_IDENTIFIED: u8 = 0x08;

// Flags of GRE: each adds four bytes to the header.
const GRE_CHECKSUM: u8 = 0x80;
const GRE_KEY: u8 = 0x20;
const GRE_SEQUENCE: u8 = 0x10;
/// Routing, strict route and recursion (RFC 1701), which no host accepts any more.
const GRE_OBSOLETE: u8 = 0x4f;
/// Version in the low three bits, of the second byte; everything else there is reserved.
const GRE_VERSION: u8 = 0x07;
const GRE_ETHERNET: u16 = 0x6558;

/// VLAN tags inside of a tunnelled frame that are skipped.
const MAX_TAGS: u64 = 2;

/// Looks for the packet inside the tunnel that `facts` are of, and leaves its source there. Without
/// a tunnel, and where it does not hold what it says, `facts` do not change. A tunnel inside the
/// tunnel is not looked into, and neither is a packet of which only a later fragment is here.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn inner(frame: &impl Bytes, facts: &mut Facts) {
    let Some(start) = facts.transport_offset() else { return };
    let start = usize::from(start);
    let found = match facts.protocol() {
        Some(protocol::IPIP) => Some((Network::V4, start)),
        Some(protocol::IPV6) => Some((Network::V6, start)),
        Some(protocol::GRE) => gre(frame, start),
        Some(protocol::UDP) => vxlan(frame, facts, start),
        _ => None,
    };
    match found {
        Some((Network::V4, offset)) => v4(frame, offset, facts),
        Some((Network::V6, offset)) => v6(frame, offset, facts),
        None => {}
    }
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn gre(frame: &impl Bytes, offset: usize) -> Option<(Network, usize)> {
    let [flags, version, high, low] = frame.read::<4>(offset)?;
    if flags & GRE_OBSOLETE != 0 || version & GRE_VERSION != 0 {
        return None;
    }
    let word = |flag: u8| if flags & flag != 0 { 4 } else { 0 };
    let payload = offset + 4 + word(GRE_CHECKSUM) + word(GRE_KEY) + word(GRE_SEQUENCE);
    match u16::from_be_bytes([high, low]) {
        GRE_ETHERNET => ethernet(frame, payload),
        kind => Some((ether::ip(kind)?, payload)),
    }
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn vxlan(frame: &impl Bytes, facts: &Facts, offset: usize) -> Option<(Network, usize)> {
    if facts.ports()?.destination != VXLAN_PORT {
        return None;
    }
    let [flags] = frame.read::<1>(offset + 8)?;
    if flags & VXLAN_IDENTIFIED == 0 { None } else { ethernet(frame, offset + VXLAN_HEADERS) }
}

/// Through the header of a tunnelled Ethernet frame.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn ethernet(frame: &impl Bytes, offset: usize) -> Option<(Network, usize)> {
    let mut next = offset + ether::ETHER_TYPE_OFFSET;
    let mut kind = u16::from_be_bytes(frame.read::<2>(next)?);
    let mut rounds = Rounds::new();
    while ether::is_tag(kind) {
        if !rounds.more(MAX_TAGS) {
            return None;
        }
        next += ether::TAG;
        kind = u16::from_be_bytes(frame.read::<2>(next)?);
    }
    Some((ether::ip(kind)?, next + 2))
}

/// The addresses count once the whole fixed header is there, as those of the outer packet do.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn v4(frame: &impl Bytes, offset: usize, facts: &mut Facts) {
    if let Some([start, ..]) = frame.read::<1>(offset)
        && start >> 4 == 4
        && let Some([a, b, c, d, ..]) = frame.read::<8>(offset + 12)
    {
        facts.set_inner(Version::V4, super::ip::mapped([a, b, c, d]));
    }
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn v6(frame: &impl Bytes, offset: usize, facts: &mut Facts) {
    if let Some([start, ..]) = frame.read::<1>(offset)
        && start >> 4 == 6
        && frame.read::<1>(offset + 39).is_some()
        && let Some(source) = frame.read::<16>(offset + 8)
    {
        facts.set_inner(Version::V6, bytemuck::cast::<[u8; 16], _>(source));
    }
}
