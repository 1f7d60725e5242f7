//! Counters by interface.

use std::collections::BTreeMap;

use limiter_api::stats::InterfaceCounts;
use limiter_common::header::Direction;
use limiter_common::wire::InterfaceCounters;
use limiter_datapath::{Attachment, LinkState, Observed};

use super::reported::Result;

/// Packets of each attached interface, by name, with the labels of what is behind it.
///
/// Interfaces that share a counter, at most two in a thousand, are one entry with both names. An
/// interface in another network namespace gets no label, because its index there may mean another
/// interface here.
pub(super) fn interfaces(
    datapath: &dyn Observed,
    labels: &BTreeMap<u32, String>,
) -> Result<Vec<InterfaceCounts>> {
    let mut by_place: BTreeMap<(u32, Direction), Vec<&Attachment>> = BTreeMap::new();
    for at in datapath.attachments().iter().filter(|at| at.state.is_attached()) {
        let direction = at.mode.hook().direction();
        let place = InterfaceCounters::place(at.ifindex, direction);
        by_place.entry((place, direction)).or_default().push(at);
    }
    let mut interfaces = Vec::with_capacity(by_place.len());
    for ((place, direction), counted) in by_place {
        let names: Vec<&str> = counted.iter().map(|at| at.interface.as_str()).collect();
        let here = counted.iter().filter(|at| at.state == LinkState::Attached);
        let labels: Vec<&str> =
            here.filter_map(|at| labels.get(&at.ifindex)).map(String::as_str).collect();
        let counters = datapath.interface_counters(place, direction)?;
        let InterfaceCounters { passed, dropped } = counters;
        interfaces.push(InterfaceCounts {
            interface: names.join(", "),
            label: (!labels.is_empty()).then(|| labels.join(", ")),
            direction: direction.name().to_owned(),
            passed: passed.into(),
            dropped: dropped.into(),
        });
    }
    Ok(interfaces)
}
