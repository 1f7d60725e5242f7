//! Ethernet and up to two VLAN tags (IEEE 802.1Q, 802.1ad).

use limiter_common::verdict::Reason;
use network_types::eth::{EthHdr, EtherType};
use network_types::vlan::VlanHdr;

use super::Bytes;

pub(super) const ETHER_TYPE_OFFSET: usize = 12;
pub(super) const HEADER: usize = EthHdr::LEN;
pub(super) const TAG: usize = VlanHdr::LEN;

/// The VLAN id within a tag's control information; priority and drop eligibility are above it.
const VLAN_ID: u16 = 0x0fff;

// network-types keeps these in network order.
const IPV4: u16 = u16::from_be(EtherType::Ipv4 as u16);
const IPV6: u16 = u16::from_be(EtherType::Ipv6 as u16);
const VLAN: u16 = u16::from_be(EtherType::Ieee8021q as u16);
const SERVICE_VLAN: u16 = u16::from_be(EtherType::Ieee8021ad as u16);
/// `QinQ` before 802.1ad had a number of its own.
const OLD_QINQ: u16 = u16::from_be(EtherType::Ieee8021QinQ1 as u16);

pub(super) enum Network {
    V4,
    V6,
}

/// The link layer in front of the network header.
pub(super) struct Link {
    pub(super) network: Network,
    /// The offset of the network header.
    pub(super) offset: usize,
    /// The id of the outer tag, or [`NO_VLAN`]. Not an option: the compiler leaves what a `None`
    /// has no value for as it is, and without `CAP_PERFMON` the verifier grants no such read.
    pub(super) vlan: u16,
}

/// The value of [`Link::vlan`] for no tag: no id is as large.
pub(super) const NO_VLAN: u16 = u16::MAX;

/// Reads up to the network header.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn link<B: Bytes>(frame: &B) -> Result<Link, Reason> {
    if B::LAYER_3 {
        return without_link(frame);
    }
    let outer = match frame.read_at::<ETHER_TYPE_OFFSET, 2>() {
        Some(bytes) => u16::from_be_bytes(bytes),
        None => return Err(Reason::Truncated),
    };
    let taken_off = taken_off(frame);
    if !is_tag(outer) {
        return network(outer, HEADER, taken_off);
    }
    let (vlan, inner) = tag(frame.read_at::<HEADER, TAG>())?;
    let is_second = taken_off != NO_VLAN;
    if !is_tag(inner) {
        return network(inner, HEADER + TAG, if is_second { taken_off } else { vlan });
    }
    if is_second {
        return Err(Reason::DeepVlan);
    }
    let (_, innermost) = tag(frame.read_at::<{ HEADER + TAG }, TAG>())?;
    if !is_tag(innermost) {
        return network(innermost, HEADER + 2 * TAG, vlan);
    }
    Err(Reason::DeepVlan)
}

/// The id of the tag that is not among the bytes of a frame ([`Bytes::tag`]), or [`NO_VLAN`].
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn taken_off(frame: &impl Bytes) -> u16 {
    match frame.tag() {
        Some(tag) => tag & VLAN_ID,
        None => NO_VLAN,
    }
}

/// Reads a frame that begins with its network header: the version says which one.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn without_link(frame: &impl Bytes) -> Result<Link, Reason> {
    // Two bytes: of a comparison that asks for one more than none, the verifier learns nothing.
    let network = match frame.read_at::<0, 2>() {
        Some([start, _]) if start >> 4 == 4 => Network::V4,
        Some([start, _]) if start >> 4 == 6 => Network::V6,
        Some(_) => return Err(Reason::NotIp),
        None => return Err(Reason::Truncated),
    };
    Ok(Link { network, offset: 0, vlan: NO_VLAN })
}

/// The `N` bytes at the start of the network header: read in place if it is where it mostly is.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn header<const N: usize, B: Bytes>(frame: &B, offset: usize) -> Option<[u8; N]> {
    if B::LAYER_3 {
        frame.read_at::<0, N>()
    } else if offset == HEADER {
        frame.read_at::<HEADER, N>()
    } else {
        frame.read(offset)
    }
}

/// The VLAN id, and the type of what follows the tag.
#[cfg_attr(target_arch = "bpf", inline(always))]
const fn tag(bytes: Option<[u8; TAG]>) -> Result<(u16, u16), Reason> {
    match bytes {
        Some([control, id, high, low]) => {
            Ok((u16::from_be_bytes([control, id]) & VLAN_ID, u16::from_be_bytes([high, low])))
        }
        None => Err(Reason::Truncated),
    }
}

#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) const fn is_tag(ether_type: u16) -> bool {
    matches!(ether_type, VLAN | SERVICE_VLAN | OLD_QINQ)
}

#[cfg_attr(target_arch = "bpf", inline(always))]
const fn network(ether_type: u16, offset: usize, vlan: u16) -> Result<Link, Reason> {
    match ip(ether_type) {
        Some(network) => Ok(Link { network, offset, vlan }),
        None => Err(Reason::NotIp),
    }
}

/// The version of IP that a type announces.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) const fn ip(ether_type: u16) -> Option<Network> {
    match ether_type {
        IPV4 => Some(Network::V4),
        IPV6 => Some(Network::V6),
        _ => None,
    }
}
