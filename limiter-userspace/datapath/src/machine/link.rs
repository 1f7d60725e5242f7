//! Interfaces of this network namespace, with their kinds and neighbours.

use std::fs;
use std::io;
use std::path::Path;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;

use crate::interfaces::interface;
use crate::interfaces::interface::Interface;
use crate::{DatapathError, netlink};

/// An interface, and how it is connected to others.
#[derive(Debug)]
pub struct Link {
    /// Name of the interface.
    pub name: String,
    /// Index of the interface.
    pub index: u32,
    /// State for limiting; an error if its frames cannot be read.
    pub interface: Result<Interface, DatapathError>,
    /// Kind, as in `ip link add type`: `veth`, `bridge`; `None` for a network card.
    pub kind: Option<String>,
    /// Driver of a card, if the kernel reports it.
    pub driver: Option<String>,
    /// Index of the bridge or bond that the interface is a port of.
    pub controller: Option<u32>,
    /// Interface below (of a VLAN), or the other end (of a veth pair).
    pub below: Option<Below>,
    /// True if it is up.
    pub is_up: bool,
    /// True of the loopback interface.
    pub is_loopback: bool,
}

/// Interface that another one refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Below {
    /// Index of the interface.
    pub index: u32,
    /// True if the index is one of this network namespace.
    pub is_here: bool,
}

impl Link {
    /// True if it has this kind, such as `veth`.
    pub fn is(&self, kind: &str) -> bool {
        self.kind.as_deref() == Some(kind)
    }
}

/// All interfaces.
pub fn links() -> Result<Vec<Link>, DatapathError> {
    let asked = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let answers =
        netlink::open(NETLINK_ROUTE).and_then(|socket| netlink::dump(&socket, asked)).map_err(
            |source| DatapathError::Netlink { interface: "the interfaces".to_owned(), source },
        )?;
    let messages = answers.into_iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewLink(message) => Some(message),
        _ => None,
    });
    Ok(messages.map(|message| from_message(&message)).collect())
}

/// Indices of bridge ports and bond members, each with the index of its bridge or bond. With `of`,
/// only those of this one.
pub(crate) fn ports(of: Option<u32>) -> io::Result<Vec<(u32, u32)>> {
    let mut asked = LinkMessage::default();
    asked.attributes.extend(of.map(LinkAttribute::Controller));
    let asked = RouteNetlinkMessage::GetLink(asked);
    let answers = netlink::dump(&netlink::open(NETLINK_ROUTE)?, asked)?;
    let ports = answers.into_iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewLink(link) => {
            link.attributes.iter().find_map(|attribute| match attribute {
                LinkAttribute::Controller(of) => Some((link.header.index, *of)),
                _ => None,
            })
        }
        _ => None,
    });
    Ok(ports.collect())
}

/// Finds an interface by its name or alternative name.
pub fn link<'a>(name: &str, links: &'a [Link]) -> Result<&'a Link, DatapathError> {
    let named = Interface::query(name);
    let found = links.iter().find(|link| match &named {
        Ok(interface) => link.index == interface.index,
        // The error is about its frames; the interface may exist.
        Err(_) => link.name == name,
    });
    found.ok_or_else(|| named.err().unwrap_or_else(|| DatapathError::NoInterface(name.to_owned())))
}

fn from_message(message: &LinkMessage) -> Link {
    let index = message.header.index;
    let mut name = format!("interface {index}");
    let (mut kind, mut controller, mut below, mut is_here) = (None, None, None, true);
    let (mut bus, mut device) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(value) => name.clone_from(value),
            LinkAttribute::Controller(value) => controller = Some(*value),
            LinkAttribute::Link(value) => below = Some(*value),
            LinkAttribute::LinkNetNsId(_) => is_here = false,
            LinkAttribute::ParentDevBusName(value) => bus = Some(value),
            LinkAttribute::ParentDevName(value) => device = Some(value),
            LinkAttribute::LinkInfo(infos) => {
                kind = infos.iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind.to_string()),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    Link {
        interface: Interface::from_link(&name, message),
        driver: bus.zip(device).and_then(|(bus, device)| driver(bus, device)),
        below: below.filter(|below| *below != 0).map(|index| Below { index, is_here }),
        is_up: message.header.flags.contains(LinkFlags::Up),
        is_loopback: message.header.flags.contains(LinkFlags::Loopback),
        name,
        index,
        kind,
        controller,
    }
}

/// Driver of a card in this network namespace, if the kernel reports it.
pub(crate) fn driver_of(index: u32) -> Option<String> {
    let mut asked = LinkMessage::default();
    asked.header.index = index;
    from_message(&interface::request(asked).ok()??).driver
}

/// True if the driver forgets a native-mode program when the link goes down, as seen on Linux 6.12:
/// vmxnet3 clears it with the rings (`vmxnet3_rq_cleanup_all`). Then every packet passes, while the
/// kernel still reports the program as attached.
pub fn forgets_program(driver: &str) -> bool {
    driver == "vmxnet3"
}

/// Driver of a device on a bus. sysfs lists buses for all network namespaces.
fn driver(bus: &str, device: &str) -> Option<String> {
    let device = Path::new("/sys/bus").join(bus).join("devices").join(device);
    let driver = fs::read_link(device.join("driver")).ok()?;
    Some(driver.file_name()?.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_among_all_interfaces() {
        let all = links().unwrap();
        let lo = link("lo", &all).unwrap();
        assert!(lo.is_loopback && lo.kind.is_none() && lo.controller.is_none(), "{lo:?}");
        assert_eq!(lo.interface.as_ref().unwrap(), &Interface::query("lo").unwrap());
        let error = link("nosuch0", &all).unwrap_err();
        assert!(matches!(error, DatapathError::NoInterface(name) if name == "nosuch0"));
    }
}
