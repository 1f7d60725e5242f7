//! Counters by interface.

use std::collections::BTreeMap;

use limiter_common::header::Direction;
use limiter_common::wire::InterfaceCounters;
use limiter_datapath::Observed;

use super::reported::Result;
use crate::api::stats::InterfaceCounts;

/// Packets of each interface that the program is on, by name.
///
/// Interfaces whose counters are one, two in a thousand at most, are one entry with both names. Of
/// an interface in another network namespace nothing is reported: its index is another there.
pub(super) fn interfaces(datapath: &dyn Observed) -> Result<Vec<InterfaceCounts>> {
    let mut by_place: BTreeMap<(u32, Direction), Vec<&str>> = BTreeMap::new();
    for at in datapath.attachments().iter().filter(|at| at.state.is_attached()) {
        let direction = at.mode.hook().direction();
        let place = InterfaceCounters::place(at.ifindex, direction);
        by_place.entry((place, direction)).or_default().push(&at.interface);
    }
    let mut interfaces = Vec::with_capacity(by_place.len());
    for ((place, direction), names) in by_place {
        let counters = datapath.interface_counters(place, direction)?;
        let InterfaceCounters { passed, dropped } = counters;
        interfaces.push(InterfaceCounts {
            interface: names.join(", "),
            direction: direction.name().to_owned(),
            passed: passed.into(),
            dropped: dropped.into(),
        });
    }
    Ok(interfaces)
}
