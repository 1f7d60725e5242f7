//! Names of the containers or guests behind interfaces, as far as the kernel knows them.
//!
//! An interface may have an alias, which whatever names containers can set. The other end of a veth
//! pair is in a network namespace, which may have a name in `/run/netns`: those of `ip netns` and
//! of container runtimes that work with CNI. limiter does not read what only root may read: sockets
//! and files of docker and libvirt, and the namespaces of other users' processes.

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

use crate::netlink;

const NAMES: &str = "/run/netns";

/// Labels of interfaces in this network namespace, by index.
pub(crate) fn labels(indices: impl Iterator<Item = u32>) -> io::Result<BTreeMap<u32, String>> {
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

/// The alias of an interface, and the kernel's id of its peer's network namespace, if that is
/// another one.
fn of_interface(socket: &Socket, index: u32) -> io::Result<(Option<String>, Option<i32>)> {
    let mut asked = LinkMessage::default();
    asked.header.index = index;
    let link = match netlink::ask(socket, RouteNetlinkMessage::GetLink(asked)) {
        Ok(RouteNetlinkMessage::NewLink(link)) => link,
        // The interface is gone.
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

/// The names of network namespaces in a directory, by their ids in this namespace.
fn names(socket: &Socket, directory: &Path) -> io::Result<BTreeMap<i32, String>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        // There are no names, or this process may not read them.
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
        // Opening must not block, whatever kind of file it is.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let opened = fs::OpenOptions::new().read(true).custom_flags(flags).open(entry.path());
        let Some(id) = opened.ok().and_then(|file| id_of(socket, &file)) else { continue };
        let name = entry.file_name().to_string_lossy().into_owned();
        // If a namespace has two names, choose the same one each time.
        let kept = names.entry(id).or_insert_with(|| name.clone());
        if name < *kept {
            *kept = name;
        }
    }
    Ok(names)
}

/// The id of a network namespace in this one. `None` without an id, which means that no interface
/// here has its peer there, and `None` for a file that is not a network namespace.
pub(super) fn id_of(socket: &Socket, file: &File) -> Option<i32> {
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
