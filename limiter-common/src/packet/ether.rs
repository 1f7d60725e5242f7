//! Ethernet and up to two VLAN tags (IEEE 802.1Q, 802.1ad).

use network_types::eth::{EthHdr, EtherType};
use network_types::vlan::VlanHdr;

use super::Bytes;
use crate::verdict::Reason;

const ETHER_TYPE_OFFSET: usize = 12;
const HEADER: usize = EthHdr::LEN;
const TAG: usize = VlanHdr::LEN;

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

/// What stands before the network header.
pub(super) struct Link {
    pub(super) network: Network,
    /// Where the network header starts.
    pub(super) offset: usize,
    /// The id of the outer tag.
    pub(super) vlan: Option<u16>,
}

/// Reads up to the network header. Tags are unrolled by hand so that every offset is a constant for
/// the verifier.
#[inline(always)]
pub(super) fn link(frame: &impl Bytes) -> Result<Link, Reason> {
    let outer = match frame.read::<2>(ETHER_TYPE_OFFSET) {
        Some(bytes) => u16::from_be_bytes(bytes),
        None => return Err(Reason::Truncated),
    };
    if !is_tag(outer) {
        return network(outer, HEADER, None);
    }
    let (vlan, inner) = tag(frame, HEADER)?;
    if !is_tag(inner) {
        return network(inner, HEADER + TAG, Some(vlan));
    }
    let (_, innermost) = tag(frame, HEADER + TAG)?;
    if !is_tag(innermost) {
        return network(innermost, HEADER + 2 * TAG, Some(vlan));
    }
    Err(Reason::DeepVlan)
}

/// The VLAN id, and the type of what follows the tag.
#[inline(always)]
fn tag(frame: &impl Bytes, offset: usize) -> Result<(u16, u16), Reason> {
    match frame.read::<TAG>(offset) {
        Some([control, id, high, low]) => {
            Ok((u16::from_be_bytes([control, id]) & VLAN_ID, u16::from_be_bytes([high, low])))
        }
        None => Err(Reason::Truncated),
    }
}

#[inline(always)]
const fn is_tag(ether_type: u16) -> bool {
    matches!(ether_type, VLAN | SERVICE_VLAN | OLD_QINQ)
}

#[inline(always)]
const fn network(ether_type: u16, offset: usize, vlan: Option<u16>) -> Result<Link, Reason> {
    match ether_type {
        IPV4 => Ok(Link { network: Network::V4, offset, vlan }),
        IPV6 => Ok(Link { network: Network::V6, offset, vlan }),
        _ => Err(Reason::NotIp),
    }
}
