//! From the bytes of a frame to the source that it is charged to.
//!
//! The source stands in the fixed IP header, so it is found whatever follows: options, extension
//! headers, fragments and unknown protocols change nothing. `docs/packets.md` has the table.

mod ether;
mod ip;

use crate::source::Source;
use crate::verdict::Reason;

/// Read access to a frame. Offsets count from the Ethernet header.
pub trait Bytes {
    /// The `N` bytes at `offset`, `None` when the frame ends before them.
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]>;
}

impl Bytes for &[u8] {
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.get(offset..)?.first_chunk().copied()
    }
}

/// What the parser found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Charged to this source.
    From(Source),
    /// Passes without being charged.
    Exempt(Reason),
}

/// Parses a frame.
#[inline(always)]
pub fn parse(frame: &impl Bytes) -> Packet {
    match ether::network_header(frame) {
        Ok((ether::Network::V4, offset)) => ip::v4(frame, offset),
        Ok((ether::Network::V6, offset)) => ip::v6(frame, offset),
        Err(reason) => Packet::Exempt(reason),
    }
}
