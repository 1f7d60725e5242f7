//! What the program tells of single drops: a sample, within a budget.

use bytemuck::{Pod, Zeroable};

/// Size of the ring of events in bytes: a power of two, and whole pages on every machine.
pub const EVENT_BYTES: u32 = 256 << 10;

/// One packet that was dropped, or would be if its rule were not in shadow mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Event {
    /// Its source: [`crate::source::Source::trie_key`].
    pub source: [u8; 16],
    /// When it came, in ticks.
    pub time: u64,
    /// The rule that it fell under: a number, or [`super::RULE_NONE`].
    pub rule: u32,
    /// The interface that it came in by.
    pub interface: u32,
    /// Length of the frame in bytes.
    pub length: u32,
    /// The sender's port; 0 unless [`Event::PORTS`].
    pub source_port: u16,
    /// The receiver's port; 0 unless [`Event::PORTS`].
    pub destination_port: u16,
    /// The number of its [`crate::verdict::Reason`].
    pub reason: u8,
    /// The IP version: 4 or 6.
    pub version: u8,
    /// Its protocol; 0 unless [`Event::PROTOCOL`].
    pub protocol: u8,
    /// What is known of it: [`Event::PROTOCOL`], [`Event::PORTS`].
    pub known: u8,
    /// 0.
    pub reserved: u32,
}

const _: () = assert!(size_of::<Event>() == 48);

impl Event {
    /// Bit of [`Event::known`]: its protocol is.
    pub const PROTOCOL: u8 = 1;

    /// Bit of [`Event::known`]: its ports are.
    pub const PORTS: u8 = 1 << 1;
}

/// The budget of events of one CPU, and what became of its drops: the value of `EVENT_BUDGET`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct EventBudget {
    /// When the next event may be sent, in ticks.
    pub next: u64,
    /// Events sent.
    pub sent: u64,
    /// Drops that are not told because the budget was used up, or is none.
    pub over_budget: u64,
    /// Drops that the budget would have told, and for which there was no room in the ring.
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
