//! The state in force, and short descriptions for it.

use std::net::IpAddr;

use limiter_api::explain::ExplainStep;
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

/// Nanoseconds, rounded up so that 0 means now.
pub(super) fn nanos_up(ticks: Ticks) -> u64 {
    let whole = ticks.as_nanos();
    whole + u64::from(Ticks::from_nanos(whole) < ticks)
}

/// The bit of [`field`] for the family of an address.
pub(super) const fn family(address: IpAddr) -> u32 {
    if address.is_ipv4() { field::V4 } else { field::V6 }
}

/// A step without a rule.
pub(super) fn plain(step: &str, reached: bool, says: &str) -> ExplainStep {
    ExplainStep { step: step.to_owned(), reached, says: says.to_owned(), ..ExplainStep::default() }
}
