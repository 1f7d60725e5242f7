//! Flows: the keys of `FLOWS`.

use bytemuck::{Pod, Zeroable};

/// A flow, in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct FlowKey {
    /// Source address in network order, IPv4 as IPv4-mapped IPv6.
    pub source: [u64; 2],
    /// Destination address in the same form.
    pub destination: [u64; 2],
    /// Source port in host order; 0 for protocols without ports.
    pub source_port: u16,
    /// Destination port in the same form.
    pub destination_port: u16,
    /// IP version.
    pub version: u16,
    /// Protocol; 256 if it is unknown.
    pub protocol: u16,
}

const _: () = assert!(size_of::<FlowKey>() == 40);
