//! The `ifb` in which packets that come in at tc wait: its queueing discipline, `fq`, holds each
//! until its departure time, and the device then returns it after tc.

use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use limiter_common::wire::Control;
use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption};
use netlink_sys::protocols::NETLINK_ROUTE;

use super::queueing::{Queueing, TCA_FQ_FLOW_PLIMIT, TCA_FQ_PLIMIT, queueing, room_for};
use crate::hooks::clsact;
use crate::interfaces::interface;
use crate::kernel::Kernel;
use crate::pins::bpffs::USUAL_MOUNT;
use crate::{DatapathError, netlink};

/// Longer than any packet waits.
const LONGEST: Duration = Duration::from_millis(2_200);

impl Kernel {
    /// Lets incoming packets wait, at most `packets` of one flow; `None` if none is to wait.
    pub(crate) fn hold_incoming(&mut self, packets: Option<u64>) -> Result<(), DatapathError> {
        self.held_back = packets;
        self.keep_ifb()
    }

    /// Sets the device up if packets are to wait, also after somebody removed it: packets that are
    /// sent to a missing device are lost.
    pub(crate) fn keep_ifb(&mut self) -> Result<(), DatapathError> {
        let index = match self.held_back {
            Some(packets) => Ifb::of(self.held.pins.path()).set_up(packets),
            None => Ok(0),
        };
        let word = index.as_ref().copied().unwrap_or(0);
        if self.held.maps.control(Control::Ifb)? != u64::from(word) {
            self.held.maps.set_control(Control::Ifb, word.into())?;
        }
        index.map(drop)
    }
}

/// The device of a limiter.
struct Ifb {
    name: String,
    /// Its alias, which identifies its owner. limiter touches no other device of that name.
    alias: String,
}

impl Ifb {
    /// The device of the limiter with this pin directory.
    fn of(pins: &Path) -> Self {
        let alias = format!("limiter, pins in {}", pins.display());
        if pins == Path::new(USUAL_MOUNT).join("limiter") {
            return Self { name: "limiter-ifb".to_owned(), alias };
        }
        // FNV-1a.
        let hash =
            pins.as_os_str().as_encoded_bytes().iter().fold(0x811c_9dc5_u32, |hash, byte| {
                (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
            });
        Self { name: format!("lim-{hash:08x}"), alias }
    }

    /// The index of the device, if it exists. An error if another device has its name.
    fn index(&self) -> Result<Option<u32>, DatapathError> {
        let Some(link) = self.link().map_err(|error| self.failed(error))? else {
            return Ok(None);
        };
        let is_own = |attribute: &LinkAttribute| matches!(attribute, LinkAttribute::IfAlias(alias) if *alias == self.alias);
        if link.attributes.iter().any(is_own) {
            return Ok(Some(link.header.index));
        }
        let name = &self.name;
        Err(self.failed(io::Error::other(format!(
            "another device has that name: `ip link set dev {name} down; ip link set dev {name} \
             name OTHER`"
        ))))
    }

    /// The device of this name, whoever owns it.
    fn link(&self) -> io::Result<Option<LinkMessage>> {
        let mut asked = LinkMessage::default();
        asked.attributes.push(LinkAttribute::IfName(self.name.clone()));
        interface::request(asked)
    }

    /// Makes the device if it is missing, and gives its `fq` enough room. Returns its index.
    fn set_up(&self, packets: u64) -> Result<u32, DatapathError> {
        if clsact::is_used() {
            let before = "before Linux 6.6 the kernel loses what a BPF program sends there";
            return Err(self.failed(io::Error::other(before)));
        }
        let found = self.index()?;
        if found.is_none() {
            self.make().map_err(|error| self.failed(error))?;
        }
        let index = self.index()?.ok_or_else(|| DatapathError::NoInterface(self.name.clone()))?;
        match queueing(&self.name)? {
            Queueing::Fq(fq) if u64::from(fq.flow_packets.min(fq.packets)) >= packets => {}
            Queueing::Fq(_) | Queueing::Other(_) | Queueing::NoFq(_) => {
                hold(index, packets, NLM_F_REPLACE)
                    .map_err(|error| self.no_fq(error))
                    .inspect_err(|_| {
                        if found.is_none()
                            && let Err(error) = delete(index)
                        {
                            let name = &self.name;
                            tracing::warn!(%error, "{name} is left: run `ip link delete {name}`");
                        }
                    })?;
            }
        }
        Ok(index)
    }

    fn make(&self) -> io::Result<()> {
        let mut asked = LinkMessage::default();
        asked.header.flags = LinkFlags::Up;
        asked.header.change_mask = LinkFlags::Up;
        asked.attributes.push(LinkAttribute::IfName(self.name.clone()));
        asked.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Ifb)]));
        change(RouteNetlinkMessage::NewLink(asked), NLM_F_CREATE | NLM_F_EXCL)?;
        // The alias can be set only after the link exists.
        let made = self.link()?.ok_or_else(|| io::Error::other("it is gone again"))?;
        let mut asked = LinkMessage::default();
        asked.header.index = made.header.index;
        asked.attributes.push(LinkAttribute::IfAlias(self.alias.clone()));
        change(RouteNetlinkMessage::SetLink(asked), 0)
    }

    /// The error of a kernel that refuses the device an `fq`; ENOENT means that it has none.
    fn no_fq(&self, error: io::Error) -> DatapathError {
        match error.raw_os_error() {
            Some(libc::ENOENT) => DatapathError::NoFq { name: self.name.clone() },
            _ => self.failed(error),
        }
    }

    fn failed(&self, source: io::Error) -> DatapathError {
        DatapathError::Ifb { name: self.name.clone(), source }
    }
}

/// Removes the device of a limiter once nothing is sent to it and it is empty.
pub(crate) fn remove(pins: &Path) -> Result<(), DatapathError> {
    let ifb = Ifb::of(pins);
    // A foreign device of that name stays.
    let Ok(Some(index)) = ifb.index() else {
        return Ok(());
    };
    thread::sleep(LONGEST);
    delete(index).map_err(|error| ifb.failed(error))
}

fn delete(index: u32) -> io::Result<()> {
    let mut asked = LinkMessage::default();
    asked.header.index = index;
    change(RouteNetlinkMessage::DelLink(asked), 0)
}

/// Gives a device an `fq` with room for so many packets per flow. `flags` say what becomes of a
/// discipline that somebody gave it.
pub(crate) fn hold(index: u32, packets: u64, flags: u16) -> io::Result<()> {
    let mut asked = TcMessage::with_index(i32::try_from(index).map_err(io::Error::other)?);
    asked.header.parent = TcHandle::ROOT;
    let option = |kind, value: u64| {
        let value = u32::try_from(value).unwrap_or(u32::MAX);
        TcOption::Other(DefaultNla::new(kind, value.to_ne_bytes().to_vec()))
    };
    let options =
        vec![option(TCA_FQ_PLIMIT, room_for(packets)), option(TCA_FQ_FLOW_PLIMIT, packets)];
    asked.attributes.push(TcAttribute::Kind("fq".to_owned()));
    asked.attributes.push(TcAttribute::Options(options));
    change(RouteNetlinkMessage::NewQueueDiscipline(asked), NLM_F_CREATE | flags)
}

fn change(asked: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    netlink::change(&netlink::open(NETLINK_ROUTE)?, asked, flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limiter_has_a_device_of_its_own() {
        let pins = ["/sys/fs/bpf/limiter", "/sys/fs/bpf/other", "/mnt/limiter"].map(Path::new);
        let [usual, other, mounted] = pins.map(|pins| Ifb::of(pins).name);
        assert_eq!(usual, "limiter-ifb");
        assert!(other != mounted && usual != other);
        // `IFNAMSIZ` with the byte at the end.
        assert!([usual, other, mounted].iter().all(|name| name.len() < 16));
    }
}
