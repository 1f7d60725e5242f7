//! The state in force.

use std::net::IpAddr;

use limiter_common::time::Ticks;
use limiter_common::wire::field;
use limiter_datapath::Observed;

use crate::lists::ListStore;
use crate::rule_sets::effective::EffectiveSet;
use crate::rule_sets::layers::Layers;

/// The state in force, for the names.
#[derive(Clone, Copy)]
pub(crate) struct InForce<'a> {
    pub(crate) datapath: &'a dyn Observed,
    pub(crate) layers: &'a Layers,
    pub(crate) effective: &'a EffectiveSet,
    pub(crate) lists: &'a ListStore,
    pub(crate) now: Ticks,
}

/// The bit of [`field`] for the family of an address.
pub(super) const fn family(address: IpAddr) -> u32 {
    if address.is_ipv4() { field::V4 } else { field::V6 }
}
