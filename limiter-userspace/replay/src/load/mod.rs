//! Loads: turns the senders in a YAML file into packets in order of time.
//!
//! A load is the same each time: all randomness is drawn from its seed.

mod file;
mod frame;
mod pattern;
mod schema;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::IpAddr;

use ipnet::IpNet;

pub use file::{LoadError, parse, schema as load_schema};
use frame::Port;
use pattern::{Draw, Pattern};

use crate::explain::Captured;

/// The beginning of every load, in nanoseconds since 1970: 00:00 UTC of 1 January 2026, when
/// windows of a second, a minute, an hour and a day begin.
pub const BEGAN: u64 = 1_767_225_600_000_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Sender {
    /// Number of sources; 1 for a flood, which invents its addresses.
    sources: u32,
    prefix: IpNet,
    pattern: Pattern,
    /// Time at which they begin, in nanoseconds from the beginning of the load.
    from: u64,
    /// Time at which they end, in nanoseconds from the beginning of the load.
    to: u64,
    /// Bytes of a frame.
    size: u64,
    port: Port,
}

/// Synthetic traffic, as described in its file.
#[derive(Clone, Debug)]
pub struct Load {
    seed: u64,
    senders: Vec<Sender>,
}

/// The next packet of one source, the earliest first.
type Next = Reverse<(u64, usize, u32)>;

/// Packets of a load in the order of time.
#[derive(Debug)]
pub struct Packets {
    senders: Vec<Sender>,
    next: BinaryHeap<Next>,
    /// By sender and source: the progress of its pattern.
    draws: Vec<Vec<Draw>>,
    random: fastrand::Rng,
    number: u64,
}

impl Load {
    /// The packets, from the first.
    pub fn packets(&self) -> Packets {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let mut packets = Packets {
            senders: self.senders.clone(),
            next: BinaryHeap::new(),
            draws: Vec::new(),
            random: random.fork(),
            number: 0,
        };
        for (index, sender) in self.senders.iter().enumerate() {
            let mut draws = Vec::new();
            for source in 0..sender.sources {
                let phase = f64::from(source) / f64::from(sender.sources);
                let mut draw = Draw::new(random.fork(), phase);
                let length = sender.to - sender.from;
                if let Some(at) = draw.next(&sender.pattern, length) {
                    packets.next.push(Reverse((sender.from + at, index, source)));
                }
                draws.push(draw);
            }
            packets.draws.push(draws);
        }
        packets
    }
}

impl Iterator for Packets {
    type Item = Captured;

    fn next(&mut self) -> Option<Captured> {
        let Reverse((at, index, source)) = self.next.pop()?;
        let sender = self.senders.get(index)?;
        let draw = self.draws.get_mut(index)?.get_mut(usize::try_from(source).ok()?)?;
        if let Some(next) = draw.next(&sender.pattern, sender.to - sender.from) {
            self.next.push(Reverse((sender.from + next, index, source)));
        }
        let offset = if matches!(sender.pattern, Pattern::Flood { .. }) {
            self.random.u128(..)
        } else {
            u128::from(source)
        };
        self.number += 1;
        let address = address(&sender.prefix, offset);
        let frame = frame::frame(address, sender.port, sender.size);
        Some(Captured {
            number: self.number,
            nanos: BEGAN + at,
            frame,
            length: sender.size,
            ..Captured::default()
        })
    }
}

/// The address at a place of a prefix; the place wraps. IPv6 sources are /64s, so the place counts
/// in the bits above the last 64.
fn address(prefix: &IpNet, place: u128) -> IpAddr {
    let mask = |bits: u32| 1u128.checked_shl(bits).map_or(u128::MAX, |size| size - 1);
    match prefix {
        IpNet::V4(net) => {
            let place = place & mask(32 - u32::from(net.prefix_len()));
            let place = u32::try_from(place).unwrap_or(0);
            IpAddr::V4((u32::from(net.network()) | place).into())
        }
        IpNet::V6(net) => {
            let place = place & mask(64u32.saturating_sub(net.prefix_len().into()));
            IpAddr::V6((u128::from(net.network()) | place << 64 | 1).into())
        }
    }
}

#[cfg(test)]
mod tests;
