//! New flows: the first packet with its addresses, protocol and ports in a minute.
//!
//! A flow is recorded when one of its packets passes, in a table that forgets the least recently
//! seen. So a flood of flows makes known flows new again, but never the reverse: the count errs on
//! the safe side. A later fragment is never a new flow, but its first fragment may be.

use limiter_common::header::Fragment;
use limiter_common::time::{TICK_BITS, Ticks};

use crate::maps::Maps;
use crate::packet::Facts;

/// Silence after which a flow counts as new: a minute.
pub const FLOW_TIMEOUT: Ticks = Ticks::new(60_000_000_000 << TICK_BITS);

/// True if a packet is the first of its flow.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn is_new<W: Maps>(maps: &W, facts: &Facts, now: Ticks) -> bool {
    if matches!(facts.fragment(), Fragment::Later) {
        return false;
    }
    match maps.flow(&facts.flow()) {
        Some(seen) => now.since(seen) > FLOW_TIMEOUT,
        None => true,
    }
}

/// Records the flow of a packet that passes.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn seen<W: Maps>(maps: &W, facts: &Facts, now: Ticks) {
    if !matches!(facts.fragment(), Fragment::Later) {
        maps.set_flow(&facts.flow(), now);
    }
}
