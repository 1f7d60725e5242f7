//! The `ifb` that holds packets which come in at tc and are to wait: a device whose queueing
//! discipline, `fq`, waits until their departure, and which gives them back behind tc.

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

use super::bpffs::USUAL_MOUNT;
use super::kernel::Kernel;
use super::queueing::{Queueing, TCA_FQ_FLOW_PLIMIT, TCA_FQ_PLIMIT, queueing, room_for};
use super::{DatapathError, Interface, clsact, netlink};

/// Longer than any packet waits.
const LONGEST: Duration = Duration::from_millis(2_200);

/// The name of the device, by the pin directory of its limiter.
fn name(pins: &Path) -> String {
    if pins == Path::new(USUAL_MOUNT).join("limiter") {
        return "limiter-ifb".to_owned();
    }
    // FNV-1a.
    let hash =
        pins.as_os_str().as_encoded_bytes().iter().fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
        });
    format!("lim-{hash:08x}")
}

impl Kernel {
    /// Lets packets that come in wait, so many of one flow; `None` if none is to wait.
    pub(super) fn hold_incoming(&mut self, packets: Option<u64>) -> Result<(), DatapathError> {
        self.held_back = packets;
        self.keep_ifb()
    }

    /// Sets the device up if packets are to wait, also after somebody has removed it: packets that
    /// are sent to a device which is not there are lost.
    pub(super) fn keep_ifb(&mut self) -> Result<(), DatapathError> {
        let index = match self.held_back {
            Some(packets) => set_up(&name(self.held.pins.path()), packets),
            None => Ok(0),
        };
        let word = index.as_ref().copied().unwrap_or(0);
        if self.held.maps.control(Control::Ifb)? != u64::from(word) {
            self.held.maps.set_control(Control::Ifb, word.into())?;
        }
        index.map(drop)
    }
}

/// Makes the device, if it is not there, and gives its `fq` enough room; its index.
fn set_up(name: &str, packets: u64) -> Result<u32, DatapathError> {
    let failed = |source| DatapathError::Ifb { name: name.to_owned(), source };
    if clsact::is_used() {
        let before = "before Linux 6.6 the kernel loses what a BPF program sends there";
        return Err(failed(io::Error::other(before)));
    }
    let found = index_of(name)?;
    if found.is_none() {
        make(name).map_err(failed)?;
    }
    let index = index_of(name)?.ok_or_else(|| DatapathError::NoInterface(name.to_owned()))?;
    match queueing(name)? {
        Queueing::Fq(fq) if u64::from(fq.flow_packets.min(fq.packets)) >= packets => {}
        Queueing::Fq(_) | Queueing::Other(_) => {
            hold(index, packets).map_err(failed).inspect_err(|_| {
                if found.is_none()
                    && let Err(error) = delete(index)
                {
                    tracing::warn!(%error, "{name} is left: run `ip link delete {name}`");
                }
            })?;
        }
    }
    Ok(index)
}

/// The index of the device, if it is there.
fn index_of(name: &str) -> Result<Option<u32>, DatapathError> {
    match Interface::query(name) {
        Ok(found) => Ok(Some(found.index)),
        Err(DatapathError::NoInterface(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes the device of a limiter to which nothing is sent any more, when all has left it.
pub(super) fn remove(pins: &Path) -> Result<(), DatapathError> {
    let name = name(pins);
    let Some(index) = index_of(&name)? else {
        return Ok(());
    };
    thread::sleep(LONGEST);
    delete(index).map_err(|source| DatapathError::Ifb { name, source })
}

fn delete(index: u32) -> io::Result<()> {
    let mut asked = LinkMessage::default();
    asked.header.index = index;
    change(RouteNetlinkMessage::DelLink(asked), 0)
}

fn make(name: &str) -> io::Result<()> {
    let mut asked = LinkMessage::default();
    asked.header.flags = LinkFlags::Up;
    asked.header.change_mask = LinkFlags::Up;
    asked.attributes.push(LinkAttribute::IfName(name.to_owned()));
    asked.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Ifb)]));
    change(RouteNetlinkMessage::NewLink(asked), NLM_F_CREATE | NLM_F_EXCL)
}

/// Gives the device an `fq` with room for so many packets of a flow.
fn hold(index: u32, packets: u64) -> io::Result<()> {
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
    change(RouteNetlinkMessage::NewQueueDiscipline(asked), NLM_F_CREATE | NLM_F_REPLACE)
}

fn change(asked: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    netlink::change(&netlink::open(NETLINK_ROUTE)?, asked, flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limiter_has_a_device_of_its_own() {
        let names = ["/sys/fs/bpf/limiter", "/sys/fs/bpf/other", "/mnt/limiter"].map(Path::new);
        let [usual, other, mounted] = names.map(name);
        assert_eq!(usual, "limiter-ifb");
        assert!(other != mounted && usual != other);
        // `IFNAMSIZ` with the byte at the end.
        assert!([usual, other, mounted].iter().all(|name| name.len() < 16));
    }
}
