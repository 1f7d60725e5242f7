//! Packets that a rule has taken away from those after it.

use ipnet::IpNet;

use super::packets::Packets;

/// What happened to packets at an earlier rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    Accepted,
    Dropped,
    Returned,
    Maybe,
}

/// Packets that some rule has taken away.
#[derive(Clone, Debug)]
pub(super) struct Barrier {
    pub(super) packets: Packets,
    pub(super) gone: Gone,
    /// True if some of them continued nevertheless.
    pub(super) partly: bool,
    pub(super) rule: usize,
}

/// Packets that only the first of a pair of rules sees.
#[derive(Debug, Default)]
pub(super) struct Between {
    /// Accepted sources: noted but not counted, or counted but never noted.
    pub(super) exempt: Vec<IpNet>,
    /// True if the loopback sources are.
    pub(super) loopback: bool,
}
