//! Packets that a rule has taken away from those after it.

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
