//! Filters of clsact: the tc hook before Linux 6.6, which has no TCX.
//!
//! A filter is not a link: it stays until somebody removes it, and cannot be pinned. Its program
//! can, so limiter pins the program for each interface, and finds the filter by the program's id.

use std::io;
use std::mem::ManuallyDrop;

use aya::programs::links::Link as _;
use aya::programs::tc::{
    NlOptions, SchedClassifierLink, TcAttachOptions, TcAttachType, TcError, TcHandle,
    qdisc_add_clsact,
};
use aya::programs::{ProgramError, SchedClassifier};
use limiter_common::header::Direction;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{self, TcAttribute, TcFilterBpfOption, TcMessage, TcOption};
use netlink_sys::protocols::NETLINK_ROUTE;

use super::tcx;
use crate::{Hook, netlink};

/// Index of the loopback interface in every network namespace (`LOOPBACK_IFINDEX`).
const LOOPBACK: u32 = 1;

/// Priority of limiter's filters: the first. Among filters of one priority, the kernel runs the
/// newest first (`cls_bpf_change` in `net/sched/cls_bpf.c`).
const FIRST: u16 = 1;

/// Distinguishes the ids of filters from those of links, which the kernel counts from 1.
const ID: u32 = 1 << 31;

/// A filter that runs a BPF program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    interface: u32,
    direction: Direction,
    preference: u16,
    handle: u32,
    pub(crate) program_id: u32,
}

/// True if this kernel has no TCX.
pub(crate) fn is_used() -> bool {
    matches!(tcx::programs(LOOPBACK, Direction::In), Ok(None))
}

/// The id of limiter's filter for an interface and a direction. No link has this id.
pub(crate) fn id(interface: u32, direction: Direction) -> u32 {
    ID | interface << 1 | u32::from(direction == Direction::Out)
}

/// The filters with BPF programs of an interface in a direction, in the order in which they run.
///
/// # Errors
///
/// The kernel's.
pub(crate) fn filters(interface: u32, direction: Direction) -> io::Result<Vec<Filter>> {
    let mut asked = TcMessage::with_index(i32::try_from(interface).map_err(io::Error::other)?);
    let minor = match direction {
        Direction::In => tc::TcHandle::MIN_INGRESS,
        Direction::Out => tc::TcHandle::MIN_EGRESS,
    };
    // `TC_H_MAKE(TC_H_CLSACT, ...)`
    asked.header.parent = tc::TcHandle { major: u16::MAX, minor };
    let socket = netlink::open(NETLINK_ROUTE)?;
    let answers = netlink::dump(&socket, RouteNetlinkMessage::GetTrafficFilter(asked))?;
    let mut filters = Vec::new();
    for answer in answers {
        let RouteNetlinkMessage::NewTrafficFilter(filter) = answer else { continue };
        // The kernel lists a priority, without a program, before its filters.
        let Some(program_id) = filter.attributes.iter().find_map(program_id) else {
            continue;
        };
        let preference = u16::try_from(filter.header.info >> 16).map_err(io::Error::other)?;
        let handle = u32::from(filter.header.handle);
        filters.push(Filter { interface, direction, preference, handle, program_id });
    }
    Ok(filters)
}

/// The program in the options of a BPF filter.
fn program_id(attribute: &TcAttribute) -> Option<u32> {
    let TcAttribute::Options(options) = attribute else {
        return None;
    };
    options.iter().find_map(|option| match option {
        TcOption::Bpf(TcFilterBpfOption::ProgId(id)) => Some(*id),
        _ => None,
    })
}

/// Adds a filter with the program before all others of clsact.
pub(crate) fn add(
    program: &mut SchedClassifier,
    interface: &str,
    place: TcAttachType,
) -> Result<(), ProgramError> {
    match qdisc_add_clsact(interface) {
        Ok(()) => {}
        // The qdisc exists already. aya has an error for this case, but does not return it:
        // findings/aya-clsact-twice.sh.
        Err(TcError::NetlinkError(error)) if error.raw_os_error() == Some(libc::EEXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let first = NlOptions { priority: FIRST, ..NlOptions::default() };
    let id = program.attach_with_options(interface, place, TcAttachOptions::Netlink(first))?;
    keep(program.take_link(id)?);
    Ok(())
}

impl Filter {
    /// The filter's id among links.
    pub(crate) fn id(&self) -> u32 {
        id(self.interface, self.direction)
    }

    /// Replaces the filter's program: every packet meets either the old or the new one.
    pub(crate) fn replace(
        &self,
        program: &mut SchedClassifier,
        interface: &str,
    ) -> Result<(), ProgramError> {
        let link = self.link(interface).map_err(TcError::IoError)?;
        let id = program.attach_to_link(link)?;
        keep(program.take_link(id)?);
        Ok(())
    }

    pub(crate) fn remove(&self, interface: &str) -> Result<(), ProgramError> {
        self.link(interface).map_err(TcError::IoError)?.detach()
    }

    fn link(&self, interface: &str) -> io::Result<SchedClassifierLink> {
        let place = Hook::Tc(self.direction).tc().unwrap_or(TcAttachType::Ingress);
        let handle = TcHandle::from(self.handle);
        SchedClassifierLink::attached(interface, place, self.preference, handle, None)
    }
}

/// Keeps a filter when this process drops its handle: aya would remove it.
fn keep(link: SchedClassifierLink) {
    let _kept = ManuallyDrop::new(link);
}
