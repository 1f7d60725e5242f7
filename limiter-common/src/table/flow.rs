//! New flows: the first packet of its addresses, protocol and ports in a minute.
//!
//! A flow is remembered when a packet of it passes, in a table that forgets the least recently
//! seen. So a flood of flows makes known ones new again, and never the other way round: the count
//! errs to the safe side. A later fragment never is a new flow, its first fragment is.

use bytemuck::{Pod, Zeroable};

use crate::packet::{Facts, Fragment};
use crate::time::{TICK_BITS, Ticks};
use crate::world::World;

/// Time for which a flow may be silent and still be the same: a minute.
pub const FLOW_TIMEOUT: Ticks = Ticks::new(60_000_000_000 << TICK_BITS);

/// A flow, in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct FlowKey {
    /// Source address in network order, IPv4 as IPv4-mapped IPv6.
    pub source: [u64; 2],
    /// Destination address, likewise.
    pub destination: [u64; 2],
    /// Source port in host order; 0 for protocols without.
    pub source_port: u16,
    /// Destination port, likewise.
    pub destination_port: u16,
    /// IP version.
    pub version: u16,
    /// Protocol; 256 where it could not be found.
    pub protocol: u16,
}

const _: () = assert!(size_of::<FlowKey>() == 40);

impl FlowKey {
    /// The flow of a packet.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn of(facts: &Facts) -> Self {
        let ports = facts.ports();
        Self {
            source: bytemuck::cast(facts.source_address()),
            destination: bytemuck::cast(facts.destination_address()),
            source_port: ports.map_or(0, |ports| ports.source),
            destination_port: ports.map_or(0, |ports| ports.destination),
            version: facts.version() as u16,
            protocol: facts.protocol().map_or(256, u16::from),
        }
    }
}

/// True if a packet is the first of its flow.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn is_new<W: World>(maps: &W, facts: &Facts, now: Ticks) -> bool {
    if matches!(facts.fragment(), Fragment::Later) {
        return false;
    }
    match maps.flow(&FlowKey::of(facts)) {
        Some(seen) => now.since(seen) > FLOW_TIMEOUT,
        None => true,
    }
}

/// Remembers the flow of a packet that passes.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn seen<W: World>(maps: &W, facts: &Facts, now: Ticks) {
    if !matches!(facts.fragment(), Fragment::Later) {
        maps.set_flow(&FlowKey::of(facts), now);
    }
}
