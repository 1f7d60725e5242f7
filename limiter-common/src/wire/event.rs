//! Events: reports of single drops, a sample within a budget.

use bytemuck::{Pod, Zeroable};

/// Size of the ring of events in bytes: a power of two, and whole pages on every machine.
pub const EVENT_BYTES: u32 = 256 << 10;

/// One packet that was dropped, or would be if its rule were not in shadow mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Event {
    /// The source, of a packet on its way out the other end that it was sent to:
    /// [`crate::source::Source::trie_key`].
    pub source: [u8; 16],
    /// Time of arrival, in ticks.
    pub time: u64,
    /// The rule that the packet fell under: a number, or [`super::RULE_NONE`].
    pub rule: u32,
    /// The interface that the packet came in by or went out by.
    pub interface: u32,
    /// Bytes of the packet; of all of them in a super-frame.
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
    /// The fields that are known: [`Event::PROTOCOL`], [`Event::PORTS`].
    pub known: u8,
    /// Packets: more than one in a super-frame.
    pub packets: u32,
}

const _: () = assert!(size_of::<Event>() == 48);

impl Event {
    /// Bit of [`Event::known`] for the protocol.
    pub const PROTOCOL: u8 = 1;

    /// Bit of [`Event::known`] for the ports.
    pub const PORTS: u8 = 1 << 1;

    /// Bit of [`Event::known`] for a packet on its way out. Its source is the other end.
    pub const OUT: u8 = 1 << 2;
}

/// The budget of events of one CPU, and what became of its drops: the value of `EVENT_BUDGET`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct EventBudget {
    /// Time from which the next event may be sent, in ticks.
    pub next: u64,
    /// Events that the ring buffer took.
    pub sent: u64,
    /// Drops that are not reported because the budget was used up, or is none.
    pub over_budget: u64,
    /// Drops that the budget would have reported, and for which there was no room in the ring.
    pub lost: u64,
}

const _: () = assert!(size_of::<EventBudget>() == 32);

impl EventBudget {
    /// Adds another CPU's counts; the time is of no CPU then.
    pub fn merge(&mut self, other: Self) {
        self.next = 0;
        self.sent = self.sent.wrapping_add(other.sent);
        self.over_budget = self.over_budget.wrapping_add(other.over_budget);
        self.lost = self.lost.wrapping_add(other.lost);
    }
}
