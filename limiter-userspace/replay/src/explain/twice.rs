//! Packets that appear in a capture more than once: xdpdump writes one before and one after each
//! XDP program. Pcapng numbers packets for that: a repeated packet has the same number.

use std::collections::{HashMap, VecDeque};

/// Numbers that are kept. Far fewer packets are inside the programs at the same time.
const KEPT: usize = 1 << 14;

#[derive(Debug, Default)]
pub(super) struct Twice {
    /// The interface at which each number was seen first.
    first: HashMap<u64, usize>,
    /// The numbers, oldest first.
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

    /// Forgets all numbers, because each section has its own.
    pub(super) fn clear(&mut self) {
        self.first.clear();
        self.order.clear();
    }
}
