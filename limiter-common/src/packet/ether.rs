//! Ethernet and up to two VLAN tags (IEEE 802.1Q, 802.1ad).

use super::Bytes;
use crate::verdict::Reason;

const ETHER_TYPE_OFFSET: usize = 12;
const HEADER: usize = 14;
const TAG: usize = 4;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN: u16 = 0x8100;
const SERVICE_VLAN: u16 = 0x88a8;
/// QinQ before 802.1ad had a number of its own.
const OLD_QINQ: u16 = 0x9100;

pub(super) enum Network {
    V4,
    V6,
}

/// The network protocol and where its header starts. Tags are unrolled by hand so that every
/// offset is a constant for the verifier.
#[inline(always)]
pub(super) fn network_header(frame: &impl Bytes) -> Result<(Network, usize), Reason> {
    let outer = ether_type(frame, ETHER_TYPE_OFFSET)?;
    if !is_tag(outer) {
        return network(outer, HEADER);
    }
    let inner = ether_type(frame, ETHER_TYPE_OFFSET + TAG)?;
    if !is_tag(inner) {
        return network(inner, HEADER + TAG);
    }
    let innermost = ether_type(frame, ETHER_TYPE_OFFSET + 2 * TAG)?;
    if !is_tag(innermost) {
        return network(innermost, HEADER + 2 * TAG);
    }
    Err(Reason::DeepVlan)
}

#[inline(always)]
fn ether_type(frame: &impl Bytes, offset: usize) -> Result<u16, Reason> {
    match frame.read::<2>(offset) {
        Some(bytes) => Ok(u16::from_be_bytes(bytes)),
        None => Err(Reason::Truncated),
    }
}

#[inline(always)]
const fn is_tag(ether_type: u16) -> bool {
    matches!(ether_type, VLAN | SERVICE_VLAN | OLD_QINQ)
}

#[inline(always)]
const fn network(ether_type: u16, offset: usize) -> Result<(Network, usize), Reason> {
    match ether_type {
        IPV4 => Ok((Network::V4, offset)),
        IPV6 => Ok((Network::V6, offset)),
        _ => Err(Reason::NotIp),
    }
}
