//! Filters of tc, and TCX programs, on an interface.

use std::io;

use aya::programs::{ProgramError, SchedClassifier, TcAttachType};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};
use netlink_sys::protocols::NETLINK_ROUTE;

use super::Link;
use crate::{DatapathError, netlink};

/// `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)`: also of the qdisc `ingress`.
const INGRESS: TcHandle = TcHandle { major: u16::MAX, minor: TcHandle::MIN_INGRESS };

/// Kinds of the filters for what comes in, each once, and names of the TCX programs. Without the
/// privilege to ask for the programs that is an error.
pub fn filters(link: &Link) -> Result<Vec<String>, DatapathError> {
    let failed = |source| DatapathError::Netlink { interface: link.name.clone(), source };
    let mut found = kinds(link.index).map_err(failed)?;
    found.extend(programs(link, TcAttachType::Ingress)?);
    Ok(found)
}

/// Names of the TCX programs for what goes out, in their order. Without the privilege to ask for
/// them that is an error.
pub fn outgoing_programs(link: &Link) -> Result<Vec<String>, DatapathError> {
    programs(link, TcAttachType::Egress)
}

fn programs(link: &Link, at: TcAttachType) -> Result<Vec<String>, DatapathError> {
    let failed = |source| DatapathError::Netlink { interface: link.name.clone(), source };
    match SchedClassifier::query_tcx(&link.name, at) {
        Ok((_, programs)) => {
            Ok(programs.iter().filter_map(|it| Some(it.name_as_str()?.to_owned())).collect())
        }
        // Linux before 6.6 has no TCX.
        Err(ProgramError::SyscallError(call))
            if call.io_error.raw_os_error() == Some(libc::EINVAL) =>
        {
            Ok(Vec::new())
        }
        Err(ProgramError::SyscallError(call)) => Err(failed(call.io_error)),
        Err(error) => Err(failed(io::Error::other(error))),
    }
}

fn kinds(index: u32) -> io::Result<Vec<String>> {
    let index = i32::try_from(index).map_err(io::Error::other)?;
    let mut asked = TcMessage::with_index(index);
    asked.header.parent = INGRESS;
    let socket = netlink::open(NETLINK_ROUTE)?;
    let answers = netlink::dump(&socket, RouteNetlinkMessage::GetTrafficFilter(asked))?;
    let mut kinds: Vec<String> = answers
        .into_iter()
        .filter_map(|answer| match answer {
            RouteNetlinkMessage::NewTrafficFilter(filter) => Some(filter),
            _ => None,
        })
        .flat_map(|filter| filter.attributes)
        .filter_map(|attribute| match attribute {
            TcAttribute::Kind(kind) => Some(kind),
            _ => None,
        })
        .collect();
    kinds.sort();
    kinds.dedup();
    Ok(kinds)
}
