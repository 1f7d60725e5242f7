//! Finds the rules that apply to a frame, without charging any.

use limiter_common::bucket::{Generation, Slot};
use limiter_common::frame_size::FrameSize;
use limiter_common::time::Ticks;
use limiter_common::wire::{Table, TableKey};
use limiter_decision::engine;
use limiter_decision::host;
use limiter_decision::maps::Maps as _;
use limiter_decision::packet::{self, Bytes, Layer3, Packet};
use limiter_decision::table::{self, Begun, KeyFacts, Scratch, locate};

use super::Model;
use crate::Framing;

/// Slots of the rules that apply to a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The slot of the source table's rule.
    pub source: Option<Slot>,
    /// The rules of the other tables, in the order of the tables.
    pub tables: Vec<FoundKeyed>,
}

/// The rule of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundKeyed {
    /// The table's place in the order.
    pub index: u32,
    /// [`limiter_common::wire::Table::id`].
    pub id: u32,
    /// The key of the frame in the table.
    pub key: TableKey,
    /// The slot of the rule's record.
    pub slot: Slot,
}

impl Model {
    /// The rules for a frame that came in by an interface; none if it is exempt.
    pub fn rules_of(&self, framing: Framing, frame: &[u8], interface: u32, now: Ticks) -> Found {
        match framing {
            Framing::Ethernet => self.rules_of_bytes(&frame, interface, now),
            Framing::Layer3 => self.rules_of_bytes(&Layer3(frame), interface, now),
        }
    }

    fn rules_of_bytes(&self, frame: &impl Bytes, interface: u32, now: Ticks) -> Found {
        let Packet::From(source) = packet::parse(frame) else {
            return Found::default();
        };
        let generation = Generation::new(self.generation());
        let header = engine::header(self, generation);
        let resolved = self.source_rule(generation, &source.into());
        let mut found = Found { source: resolved, tables: Vec::new() };
        let scratch =
            host::begin(self, frame, interface, (generation, header), FrameSize::of_packet(0), now);
        for index in 0..header.tables() {
            let Some(of) = self.table(generation, index) else {
                break;
            };
            let rule = self.found_in(&scratch, index, of);
            found.tables.extend(rule.filter(|rule| rule.slot != Slot::NONE));
        }
        found
    }

    /// The rule of the current packet in a table; `None` if the packet has no rule there.
    pub(super) fn found_in(&self, scratch: &Scratch, index: u32, of: &Table) -> Option<FoundKeyed> {
        let mut key = locate(of, &scratch.facts, &KeyFacts::of(&scratch.facts))?;
        let slot = if table::begin(self, scratch, index) == Begun::FIXED {
            Slot::new(of.fixed)
        } else {
            // Unlike the first key, this one has its ranges.
            key = scratch.located(index)?;
            table::most_specific(self, scratch, index)
        };
        Some(FoundKeyed { index, id: of.id, key, slot })
    }
}
