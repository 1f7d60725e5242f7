//! Packets that stand in a capture more than once: xdpdump writes one before each XDP program and
//! one behind it. Pcapng has a number for that, the same wherever a packet is seen again.

use std::collections::{HashMap, VecDeque};

/// Numbers that are kept: those of the packets that are under way through the programs at once are
/// far fewer.
const KEPT: usize = 1 << 14;

#[derive(Debug, Default)]
pub(super) struct Twice {
    /// The interface at which a packet was seen first, by its number.
    first: HashMap<u64, usize>,
    /// The numbers, the oldest first.
    order: VecDeque<u64>,
}

impl Twice {
    /// True if the packet of this number was seen before at another interface of the file.
    pub(super) fn is_again(&mut self, number: u64, interface: usize) -> bool {
        if let Some(first) = self.first.get(&number) {
            return *first != interface;
        }
        if self.order.len() >= KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.first.remove(&oldest);
        }
        self.first.insert(number, interface);
        self.order.push_back(number);
        false
    }

    /// Forgets all: another section has numbers of its own.
    pub(super) fn clear(&mut self) {
        self.first.clear();
        self.order.clear();
    }
}
