//! Packets that a rule has taken away from those after it.

use ipnet::IpNet;

use super::packets::Packets;

/// Fate of packets before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    Accepted,
    Dropped,
    Returned,
    /// Something that is not known.
    Maybe,
}

/// Packets that some rule has taken away.
#[derive(Clone, Debug)]
pub(super) struct Barrier {
    pub(super) packets: Packets,
    pub(super) gone: Gone,
    /// True if some of them went on all the same.
    pub(super) partly: bool,
    pub(super) rule: usize,
}

/// Packets of a pair of rules that come only to the first of them.
#[derive(Debug, Default)]
pub(super) struct Between {
    /// Sources that are accepted: they are noted and not counted, or counted and never noted.
    pub(super) exempt: Vec<IpNet>,
    /// True if those of loopback are.
    pub(super) loopback: bool,
}
