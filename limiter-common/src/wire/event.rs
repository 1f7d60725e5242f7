//! Events: reports of single drops, a sample within a budget.

use bytemuck::{Pod, Zeroable};

/// Size of the ring of events in bytes: a power of two, and whole pages on every machine.
pub const EVENT_BYTES: u32 = 256 << 10;

/// A packet that was dropped, or would be if its rule were not in shadow mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Event {
    /// The source; for an outgoing packet, its destination. As [`crate::source::Source::trie_key`].
    pub source: [u8; 16],
    /// Time of arrival, in ticks.
    pub time: u64,
    /// The rule of the packet: a number, or [`super::RULE_NONE`].
    pub rule: u32,
    /// The interface by which the packet came in or went out.
    pub interface: u32,
    /// Bytes of the packet, or of all packets in a super-frame.
    pub length: u32,
    /// The port of the source; 0 unless [`Event::PORTS`].
    pub source_port: u16,
    /// The port of the destination; 0 unless [`Event::PORTS`].
    pub destination_port: u16,
    /// The number of the [`crate::verdict::Reason`].
    pub reason: u8,
    /// The IP version: 4 or 6.
    pub version: u8,
    /// The protocol; 0 unless [`Event::PROTOCOL`].
    pub protocol: u8,
    /// Which fields are known: [`Event::PROTOCOL`], [`Event::PORTS`].
    pub known: u8,
    /// Number of packets: more than one in a super-frame.
    pub packets: u32,
}

const _: () = assert!(size_of::<Event>() == 48);

impl Event {
    /// Bit of [`Event::known`] for the protocol.
    pub const PROTOCOL: u8 = 1;

    /// Bit of [`Event::known`] for the ports.
    pub const PORTS: u8 = 1 << 1;

    /// Bit of [`Event::known`] for an outgoing packet. Its source is the other end.
    pub const OUT: u8 = 1 << 2;
}

/// The budget of events of one CPU, and counts of its drops: the value of `EVENT_BUDGET`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct EventBudget {
    /// Time from which the next event may be sent, in ticks.
    pub next: u64,
    /// Events that the ring buffer accepted.
    pub sent: u64,
    /// Drops that were not reported because the budget was used up or is zero.
    pub over_budget: u64,
    /// Drops within the budget for which the ring had no space.
    pub lost: u64,
}

const _: () = assert!(size_of::<EventBudget>() == 32);

impl EventBudget {
    /// Adds another CPU's counts. The time then belongs to no CPU.
    pub fn merge(&mut self, other: Self) {
        self.next = 0;
        self.sent = self.sent.wrapping_add(other.sent);
        self.over_budget = self.over_budget.wrapping_add(other.over_budget);
        self.lost = self.lost.wrapping_add(other.lost);
    }
}
