//! Writes of a plan for the tables beside the source table.

use limiter_common::wire::{Action, Record, RuleSetHeader, Shape, Table, TableKey, TrieValue};

/// The tables of a whole rule set, ready for the maps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TablesPlan {
    /// Header: all that the program has to know before it looks at a packet.
    pub header: RuleSetHeader,
    /// The tables in the order in which they are asked, each with its shapes.
    pub tables: Vec<(Table, Vec<Shape>)>,
    /// The whole new trie: key, significant bits of it, value.
    pub trie: Vec<(TableKey, u32, TrieValue)>,
    /// Slots to fill.
    pub records: Vec<(u32, Record)>,
    /// Actions to fill, by index.
    pub actions: Vec<(u32, Action)>,
    /// Budgets that begin: their state is to be zeroed.
    pub begun_budgets: Vec<u32>,
    /// Interfaces that packets are redirected to: index into the map, interface index.
    pub interfaces: Vec<(u32, u32)>,
    /// CPUs that packets are redirected to: index into the map, which is the CPU's number.
    pub cpus: Vec<u32>,
    /// The word of [`limiter_common::wire::OwnBudget::Replies`].
    pub replies: u64,
    /// The word of [`limiter_common::wire::OwnBudget::Bans`].
    pub bans: u64,
    /// True if any rule bans.
    pub keeps_bans: bool,
}
