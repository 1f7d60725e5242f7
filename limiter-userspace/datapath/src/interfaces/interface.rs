//! State of an interface by route netlink. Not by sysfs, which shows the network namespace that it
//! was mounted in instead of ours.

use std::io;

use limiter_common::header::Direction;
use limiter_model::Framing;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkLayerType, LinkMessage, LinkXdp, XdpAttached};
use netlink_sys::protocols::NETLINK_ROUTE;

use crate::hooks::{clsact, tcx};
use crate::{DatapathError, Hook, Mode, netlink};

/// An interface and its properties that matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name of the interface, which may change.
    pub name: String,
    /// Index of the interface, which does not change.
    pub index: u32,
    /// Largest network packet in bytes.
    pub mtu: u32,
    /// Header at the beginning of its frames.
    pub framing: Framing,
    /// The XDP program on the interface: its mode, and the kernel's id.
    pub program: Option<(Mode, u32)>,
}

/// Ethernet header and two VLAN tags: the bytes of a frame beyond the MTU.
const FRAME_OVERHEAD: u32 = 22;

/// A frame of the usual MTU with two VLAN tags.
pub(crate) const MIN_MAX_FRAME: u64 = 1522;

impl Interface {
    /// Asks the kernel for an interface by its name.
    pub fn query(name: &str) -> Result<Self, DatapathError> {
        // IFNAMSIZ with its terminator.
        if name.is_empty() || name.len() > 15 || name.contains('/') {
            return Err(DatapathError::NoInterface(name.to_owned()));
        }
        let mut asked = LinkMessage::default();
        asked.attributes.push(LinkAttribute::IfName(name.to_owned()));
        match request(asked) {
            Ok(Some(link)) => Self::from_link(name, &link),
            Ok(None) => Err(DatapathError::NoInterface(name.to_owned())),
            Err(source) => Err(DatapathError::Netlink { interface: name.to_owned(), source }),
        }
    }

    /// Asks for the interface with this index in this network namespace, if there is one.
    pub(crate) fn at(index: u32) -> Result<Option<Self>, DatapathError> {
        let mut asked = LinkMessage::default();
        asked.header.index = index;
        let called = |link: &LinkMessage| {
            link.attributes.iter().find_map(|attribute| match attribute {
                LinkAttribute::IfName(name) => Some(name.clone()),
                _ => None,
            })
        };
        match request(asked) {
            Ok(Some(link)) => {
                let name = called(&link).unwrap_or_else(|| format!("interface {index}"));
                Self::from_link(&name, &link).map(Some)
            }
            Ok(None) => Ok(None),
            Err(source) => {
                Err(DatapathError::Netlink { interface: format!("interface {index}"), source })
            }
        }
    }

    /// False only if a hook of the interface is known to have no program.
    pub(crate) fn may_have_program(&self, hook: Hook) -> bool {
        match hook {
            Hook::Xdp => self.program.is_some(),
            Hook::Tc(direction) => {
                !matches!(self.programs_at_tc(direction), Ok(programs) if programs.is_empty())
            }
        }
    }

    pub(crate) fn runs(&self, hook: Hook, program_id: u32) -> bool {
        match hook {
            Hook::Xdp => self.program.is_some_and(|(_, id)| id == program_id),
            Hook::Tc(direction) => {
                let programs = self.programs_at_tc(direction);
                programs.is_ok_and(|programs| programs.contains(&program_id))
            }
        }
    }

    /// Ids of the programs at tc, in the order in which they run: by TCX, or by clsact on kernels
    /// without TCX.
    pub(crate) fn programs_at_tc(&self, direction: Direction) -> io::Result<Vec<u32>> {
        if let Some(programs) = tcx::programs(self.index, direction)? {
            return Ok(programs);
        }
        let filters = clsact::filters(self.index, direction)?;
        Ok(filters.into_iter().map(|filter| filter.program_id).collect())
    }

    /// The largest frame in bytes, without the checksum.
    pub fn max_frame(&self) -> u64 {
        u64::from(self.mtu) + u64::from(FRAME_OVERHEAD)
    }

    pub(crate) fn from_link(name: &str, link: &LinkMessage) -> Result<Self, DatapathError> {
        let framing = match link.header.link_layer_type {
            LinkLayerType::Ether | LinkLayerType::Loopback => Framing::Ethernet,
            LinkLayerType::None => Framing::Layer3,
            kind => {
                let (interface, kind) = (name.to_owned(), kind.to_string());
                return Err(DatapathError::Framing { interface, kind });
            }
        };
        let mut mtu = 1500;
        let mut id = None;
        let mut mode = None;
        for attribute in &link.attributes {
            match attribute {
                LinkAttribute::Mtu(value) => mtu = *value,
                LinkAttribute::Xdp(xdp) => {
                    for entry in xdp {
                        match entry {
                            LinkXdp::Attached(XdpAttached::SocketBuffer) => {
                                mode = Some(Mode::Generic);
                            }
                            LinkXdp::Attached(XdpAttached::None) => mode = None,
                            LinkXdp::Attached(_) => mode = Some(Mode::Native),
                            LinkXdp::ProgId(value) => id = Some(*value),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        let (name, index) = (name.to_owned(), link.header.index);
        Ok(Self { name, index, mtu, framing, program: mode.zip(id) })
    }
}

/// The kernel's answer about a link; `None` if there is no such link.
pub(crate) fn request(asked: LinkMessage) -> io::Result<Option<LinkMessage>> {
    match netlink::ask(&netlink::open(NETLINK_ROUTE)?, RouteNetlinkMessage::GetLink(asked)) {
        Ok(RouteNetlinkMessage::NewLink(link)) => Ok(Some(link)),
        Ok(other) => Err(io::Error::other(format!("unexpected answer {other:?}"))),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_kind(kind: LinkLayerType) -> Result<Interface, DatapathError> {
        let mut link = LinkMessage::default();
        link.header.link_layer_type = kind;
        Interface::from_link("x0", &link)
    }

    /// Interfaces of other kinds are refused.
    #[test]
    fn frames_that_nobody_can_read_are_refused() {
        let framing = |kind| of_kind(kind).map(|interface| interface.framing);
        assert!(matches!(framing(LinkLayerType::Ether), Ok(Framing::Ethernet)));
        assert!(matches!(framing(LinkLayerType::Loopback), Ok(Framing::Ethernet)));
        assert!(matches!(framing(LinkLayerType::None), Ok(Framing::Layer3)));
        for kind in [LinkLayerType::Ppp, LinkLayerType::Ipgre, LinkLayerType::Can] {
            let error = framing(kind).map_err(|error| error.to_string());
            let named = |text: &String| text.contains("x0") && text.contains(&kind.to_string());
            assert!(matches!(&error, Err(text) if named(text)), "{error:?}");
        }
    }
}
