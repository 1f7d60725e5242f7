//! Changes that a card makes to frames before the program sees them, over generic netlink. There is
//! no other way without `unsafe`: the `ioctl` takes pointers, and sysfs does not have it.

use std::convert::Infallible;
use std::io;

use netlink_packet_core::{
    DefaultNla, Emitable as _, NLA_F_NESTED, NetlinkDeserializable, NetlinkHeader, NetlinkPayload,
    NetlinkSerializable, NlaBuffer, NlasIterator,
};
use netlink_sys::{Socket, protocols::NETLINK_GENERIC};

use super::{DatapathError, netlink};

/// `include/uapi/linux/genetlink.h`: who knows the numbers of families, and its question.
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

/// `include/uapi/linux/ethtool_netlink.h`: the question, and the way to the names in the answer.
const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
const ETHTOOL_A_FEATURES_HEADER: u16 = 1;
const ETHTOOL_A_HEADER_DEV_NAME: u16 = 2;
const ETHTOOL_A_FEATURES_ACTIVE: u16 = 4;
const ETHTOOL_A_BITSET_BITS: u16 = 3;
const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;

/// Of both families.
const VERSION: u8 = 1;

/// Before the attributes: command, version, two bytes of nothing.
const HEADER: usize = 4;

/// Name of the kernel for `rx-vlan-offload` of `ethtool`.
const STRIPS: &[u8] = b"rx-vlan-hw-parse\0";

/// True if an interface takes VLAN tags off, as far as the driver says so.
pub fn strips_tags(interface: &str) -> Result<bool, DatapathError> {
    features(interface)
        .map(|names| names.iter().any(|name| name == STRIPS))
        .map_err(|source| DatapathError::Netlink { interface: interface.to_owned(), source })
}

/// The names of the features that are on, each with its terminator.
fn features(interface: &str) -> io::Result<Vec<Vec<u8>>> {
    let socket = netlink::open(NETLINK_GENERIC)?;
    let name = DefaultNla::new(CTRL_ATTR_FAMILY_NAME, b"ethtool\0".to_vec());
    let family = ask(&socket, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, &[name])?;
    let family = attribute(&family, CTRL_ATTR_FAMILY_ID)?;
    let family = family.and_then(|id| id.try_into().ok()).map(u16::from_ne_bytes);
    let family = family.ok_or_else(|| io::Error::other("no number for the family ethtool"))?;

    let name = [interface.as_bytes(), &[0]].concat();
    let name = DefaultNla::new(ETHTOOL_A_HEADER_DEV_NAME, name);
    let header = DefaultNla::new(ETHTOOL_A_FEATURES_HEADER | NLA_F_NESTED, bytes(&[name]));
    let answer = ask(&socket, family, ETHTOOL_MSG_FEATURES_GET, &[header])?;
    let active = attribute(&answer, ETHTOOL_A_FEATURES_ACTIVE)?;
    let bits = match &active {
        Some(active) => attribute(active, ETHTOOL_A_BITSET_BITS)?,
        None => None,
    };
    let bits = bits.ok_or_else(|| io::Error::other("the answer has no active features"))?;
    let mut names = Vec::new();
    for bit in NlasIterator::new(bits.as_slice()) {
        names.extend(attribute(bit.map_err(io::Error::other)?.value(), ETHTOOL_A_BITSET_BIT_NAME)?);
    }
    Ok(names)
}

/// The attributes of the answer to a request.
fn ask(socket: &Socket, family: u16, command: u8, request: &[DefaultNla]) -> io::Result<Vec<u8>> {
    let body = [&[command, VERSION, 0, 0][..], &bytes(request)].concat();
    let answer = netlink::ask(socket, Generic { family, body })?;
    Ok(answer.body.get(HEADER..).unwrap_or_default().to_vec())
}

fn bytes(attributes: &[DefaultNla]) -> Vec<u8> {
    let mut bytes = vec![0; attributes.buffer_len()];
    attributes.emit(&mut bytes);
    bytes
}

/// The value of the first attribute of a kind.
fn attribute(attributes: &[u8], kind: u16) -> io::Result<Option<Vec<u8>>> {
    for attribute in NlasIterator::new(attributes) {
        let attribute: NlaBuffer<&[u8]> = attribute.map_err(io::Error::other)?;
        if attribute.kind() == kind {
            return Ok(Some(attribute.value().to_vec()));
        }
    }
    Ok(None)
}

/// A message of generic netlink: its family, and everything behind the netlink header.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Generic {
    family: u16,
    body: Vec<u8>,
}

impl NetlinkSerializable for Generic {
    fn message_type(&self) -> u16 {
        self.family
    }

    fn buffer_len(&self) -> usize {
        self.body.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        for (to, from) in buffer.iter_mut().zip(&self.body) {
            *to = *from;
        }
    }
}

impl NetlinkDeserializable for Generic {
    type Error = Infallible;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Infallible> {
        Ok(Self { family: header.message_type, body: payload.to_vec() })
    }
}

impl From<Generic> for NetlinkPayload<Generic> {
    fn from(message: Generic) -> Self {
        Self::InnerMessage(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loopback interface takes no tags off, and says what else it does.
    #[test]
    fn the_kernel_answers_anybody() {
        let names = features("lo").unwrap();
        assert!(names.iter().any(|name| name == b"loopback\0"), "{names:?}");
        assert!(!strips_tags("lo").unwrap());
    }

    #[test]
    fn an_interface_that_does_not_exist_is_named() {
        let error = strips_tags("nosuch0").unwrap_err().to_string();
        assert!(error.contains("nosuch0"), "{error}");
    }
}
