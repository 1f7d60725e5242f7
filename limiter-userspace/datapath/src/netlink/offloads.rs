//! Offloads by which a card changes frames before the program sees them, by generic netlink.
//! Without `unsafe` there is no other way: the `ioctl` takes pointers, and sysfs does not list
//! them.

use std::io;

use netlink_packet_core::NlasIterator;

use super::generic::{ask_ethtool, attribute};
use crate::DatapathError;

/// `include/uapi/linux/ethtool_netlink.h`: the request, and the attributes that lead to the names
/// in the answer.
const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
const ETHTOOL_A_FEATURES_HW: u16 = 2;
const ETHTOOL_A_FEATURES_ACTIVE: u16 = 4;
const ETHTOOL_A_FEATURES_NOCHANGE: u16 = 5;
const ETHTOOL_A_BITSET_NOMASK: u16 = 1;
const ETHTOOL_A_BITSET_BITS: u16 = 3;
const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;
const ETHTOOL_A_BITSET_BIT_VALUE: u16 = 3;

/// The kernel's name for ethtool's `rx-vlan-offload`.
pub const STRIPS_TAGS: &str = "rx-vlan-hw-parse";

/// Offloads of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// Kernel names of the active offloads: `rx-gro`, `rx-vlan-hw-parse`.
    pub active: Vec<String>,
    /// Names of the offloads that the driver allows to be switched.
    pub switchable: Vec<String>,
}

impl Offloads {
    /// True if the offload is on.
    pub fn is_on(&self, name: &str) -> bool {
        self.active.iter().any(|active| active == name)
    }

    /// True if the offload can be switched on and off.
    pub fn is_switchable(&self, name: &str) -> bool {
        self.switchable.iter().any(|switchable| switchable == name)
    }
}

/// True if the driver reports that an interface removes VLAN tags.
pub fn strips_tags(interface: &str) -> Result<bool, DatapathError> {
    offloads(interface).map(|offloads| offloads.is_on(STRIPS_TAGS))
}

/// Remedy for an interface that removes VLAN tags before limiter sees them.
pub fn keep_tags(interface: &str) -> String {
    format!(
        "ethtool -K {interface} rxvlan off; the other end of a veth pair takes them off, too: \
         ethtool -K PEER txvlan off"
    )
}

/// The offloads of an interface.
pub fn offloads(interface: &str) -> Result<Offloads, DatapathError> {
    features(interface)
        .map_err(|source| DatapathError::Netlink { interface: interface.to_owned(), source })
}

fn features(interface: &str) -> io::Result<Offloads> {
    let answer = ask_ethtool(ETHTOOL_MSG_FEATURES_GET, interface)?;
    let bitset = |kind| attribute(&answer, kind)?.map(|bitset| names(&bitset)).transpose();
    let active = bitset(ETHTOOL_A_FEATURES_ACTIVE)?;
    let active = active.ok_or_else(|| io::Error::other("the answer has no active features"))?;
    let never = bitset(ETHTOOL_A_FEATURES_NOCHANGE)?.unwrap_or_default();
    let mut switchable = bitset(ETHTOOL_A_FEATURES_HW)?.unwrap_or_default();
    switchable.retain(|name| !never.contains(name));
    Ok(Offloads { active, switchable })
}

/// Names of the set bits. A bitset without a mask lists only set bits.
fn names(bitset: &[u8]) -> io::Result<Vec<String>> {
    let has_mask = attribute(bitset, ETHTOOL_A_BITSET_NOMASK)?.is_none();
    let bits = attribute(bitset, ETHTOOL_A_BITSET_BITS)?.unwrap_or_default();
    let mut names = Vec::new();
    for bit in NlasIterator::new(bits.as_slice()) {
        let bit = bit.map_err(io::Error::other)?;
        if has_mask && attribute(bit.value(), ETHTOOL_A_BITSET_BIT_VALUE)?.is_none() {
            continue;
        }
        let name = attribute(bit.value(), ETHTOOL_A_BITSET_BIT_NAME)?;
        let name = name.map(|name| String::from_utf8_lossy(&name).into_owned());
        names.extend(name.map(|name| name.trim_end_matches('\0').to_owned()));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loopback interface strips no tags, and reports its other offloads.
    #[test]
    fn the_kernel_answers_anybody() {
        let offloads = features("lo").unwrap();
        assert!(offloads.is_on("loopback") && !offloads.is_switchable("loopback"), "{offloads:?}");
        assert!(offloads.is_on("rx-gro") && offloads.is_switchable("rx-gro"), "{offloads:?}");
        assert!(!offloads.is_switchable("rx-lro"), "{offloads:?}");
        assert!(!strips_tags("lo").unwrap());
    }

    #[test]
    fn an_interface_that_does_not_exist_is_named() {
        let error = strips_tags("nosuch0").unwrap_err().to_string();
        assert!(error.contains("nosuch0"), "{error}");
    }
}
