//! Generic netlink: sends a request to a family by its name, and reads the attributes of the
//! answer.

use std::convert::Infallible;
use std::io;

use netlink_packet_core::{
    DefaultNla, Emitable as _, NLA_F_NESTED, NetlinkDeserializable, NetlinkHeader, NetlinkPayload,
    NetlinkSerializable, NlaBuffer, NlasIterator,
};
use netlink_sys::{Socket, protocols::NETLINK_GENERIC};

use crate::netlink;

/// `include/uapi/linux/genetlink.h`: the controller, which knows the ids of families, and its
/// request.
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

/// `include/uapi/linux/ethtool_netlink.h`: the header of each request.
const ETHTOOL_A_HEADER: u16 = 1;
const ETHTOOL_A_HEADER_DEV_NAME: u16 = 2;

const VERSION: u8 = 1;

/// Bytes before the attributes: command, version, two reserved bytes.
const HEADER: usize = 4;

/// Sends a request about an interface to the `ethtool` family. Returns the attributes of the
/// answer.
pub(crate) fn ask_ethtool(command: u8, interface: &str) -> io::Result<Vec<u8>> {
    let name = [interface.as_bytes(), &[0]].concat();
    let name = DefaultNla::new(ETHTOOL_A_HEADER_DEV_NAME, name);
    let header = DefaultNla::new(ETHTOOL_A_HEADER | NLA_F_NESTED, bytes(&[name]));
    ask_family("ethtool", command, &[header])
}

/// Sends a request to a family by its name. A kernel without the family answers `ENOENT`.
pub(crate) fn ask_family(name: &str, command: u8, request: &[DefaultNla]) -> io::Result<Vec<u8>> {
    let socket = netlink::open(NETLINK_GENERIC)?;
    let called = DefaultNla::new(CTRL_ATTR_FAMILY_NAME, [name.as_bytes(), &[0]].concat());
    let family = ask(&socket, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, &[called])?;
    let family = attribute(&family, CTRL_ATTR_FAMILY_ID)?;
    let family = family.and_then(|id| id.try_into().ok()).map(u16::from_ne_bytes);
    let family =
        family.ok_or_else(|| io::Error::other(format!("no number for the family {name}")))?;
    ask(&socket, family, command, request)
}

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

pub(crate) fn attribute(attributes: &[u8], kind: u16) -> io::Result<Option<Vec<u8>>> {
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
