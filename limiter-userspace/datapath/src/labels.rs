//! Names of what is behind interfaces: a container's or a guest's, as far as the kernel has one.
//!
//! An interface may have an alias, which anybody who names containers can set. The other end of a
//! veth pair is in a network namespace, which may have a name in `/run/netns`: those of `ip netns`
//! and of container runtimes that work with CNI. What only root may read is not asked: sockets and
//! files of docker and libvirt, and the namespaces of other users' processes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;
use rustix::fs::OFlags;

use super::netlink;

/// Directory in which network namespaces have names.
const NAMES: &str = "/run/netns";

/// The names of what is behind these interfaces of this network namespace, by index.
pub(super) fn labels(indices: impl Iterator<Item = u32>) -> io::Result<BTreeMap<u32, String>> {
    let socket = netlink::open(NETLINK_ROUTE)?;
    let mut labels = BTreeMap::new();
    let mut behind = BTreeMap::new();
    for index in indices {
        match of_interface(&socket, index)? {
            (Some(alias), _) => {
                labels.insert(index, alias);
            }
            (None, Some(namespace)) => {
                behind.insert(index, namespace);
            }
            (None, None) => {}
        }
    }
    if behind.is_empty() {
        return Ok(labels);
    }
    let names = names(&socket, Path::new(NAMES))?;
    for (index, namespace) in behind {
        if let Some(name) = names.get(&namespace) {
            labels.insert(index, name.clone());
        }
    }
    Ok(labels)
}

/// The alias of an interface, and the kernel's id of the network namespace of its other end, if
/// that is another one.
fn of_interface(socket: &Socket, index: u32) -> io::Result<(Option<String>, Option<i32>)> {
    let mut asked = LinkMessage::default();
    asked.header.index = index;
    let link = match netlink::ask(socket, RouteNetlinkMessage::GetLink(asked)) {
        Ok(RouteNetlinkMessage::NewLink(link)) => link,
        // It is gone by now.
        Ok(_) => return Ok((None, None)),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok((None, None)),
        Err(error) => return Err(error),
    };
    let (mut alias, mut namespace) = (None, None);
    for attribute in link.attributes {
        match attribute {
            LinkAttribute::IfAlias(text) if !text.trim().is_empty() => {
                alias = Some(text.trim().to_owned());
            }
            LinkAttribute::LinkNetNsId(id) => namespace = Some(id),
            _ => {}
        }
    }
    Ok((alias, namespace))
}

/// The names of network namespaces in a directory, by the ids that they have in this one.
fn names(socket: &Socket, directory: &Path) -> io::Result<BTreeMap<i32, String>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        // Nobody has named any, or not to us.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
            ) =>
        {
            return Ok(BTreeMap::new());
        }
        Err(error) => return Err(error),
    };
    let mut names = BTreeMap::new();
    for entry in entries {
        let entry = entry?;
        // Whatever it is, opening it does not wait.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let opened = fs::OpenOptions::new().read(true).custom_flags(flags).open(entry.path());
        let Some(id) = opened.ok().and_then(|file| id_of(socket, &file)) else { continue };
        let name = entry.file_name().to_string_lossy().into_owned();
        // Of two names, the same one each time.
        let kept = names.entry(id).or_insert_with(|| name.clone());
        if name < *kept {
            *kept = name;
        }
    }
    Ok(names)
}

/// The id that a network namespace has in this one. None without an id: then no interface here has
/// its other end there. None for a file that is no network namespace.
fn id_of(socket: &Socket, file: &File) -> Option<i32> {
    let mut asked = NsidMessage::default();
    asked.attributes.push(NsidAttribute::Fd(file.as_raw_fd().cast_unsigned()));
    let Ok(RouteNetlinkMessage::NewNsId(answer)) =
        netlink::ask(socket, RouteNetlinkMessage::GetNsId(asked))
    else {
        return None;
    };
    answer.attributes.into_iter().find_map(|attribute| match attribute {
        NsidAttribute::Id(id) => Some(id).filter(|id| *id >= 0),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_namespace_has_no_name() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("left-behind"), "").unwrap();
        fs::create_dir(directory.path().join("directory")).unwrap();
        let socket = netlink::open(NETLINK_ROUTE).unwrap();
        assert!(names(&socket, directory.path()).unwrap().is_empty());
        assert!(names(&socket, &directory.path().join("missing")).unwrap().is_empty());
    }

    #[test]
    fn an_interface_that_is_gone_has_no_label() {
        assert!(labels([u32::MAX >> 1].into_iter()).unwrap().is_empty());
    }
}
