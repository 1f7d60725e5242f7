//! Tables: limits by any facts of a packet, several to a rule, of any algorithm.
//!
//! A table is a list of facts and of masks; they make the key of the bucket, so the bucket is found
//! before any rule is asked. The bucket remembers which rule holds for its key, as in the source
//! table. Most packets take the route of plain tables, [`judge_plain`], and all others the general
//! one, [`run_tables`]. Both look up every bucket, then judge by the source table, then charge
//! every bucket.
//!
//! The parts of that are subprograms ([`mod@crate::subprograms`]): in the kernel each is a function
//! that the verifier proves by itself, so that its work does not multiply.

mod entry;
pub mod flow;
mod result;
mod run;
mod target;

mod charge;
mod check;
mod clock;
mod compact;
mod compact_row;
mod delay;
mod key;
mod key_cell;
mod lease;
pub mod limit;
mod lookup;
mod over;
mod peek;
mod plain;
mod plain_tables;
mod plain_wide;
mod refresh;
mod scratch;
mod spend;
mod undo;
mod weight;
mod wish;

pub use charge::{
    ChargePlan, RecordCharge, charge, charge_planned, charge_record, charge_rest, charge_shared,
    give_back, note_passed, plan_charge,
};
pub use check::{Check, check_limits};
pub use clock::read_clock;
#[cfg(not(target_arch = "bpf"))]
pub use compact_row::judge_compact_alone;
pub use compact_row::{
    charge_at_compact, charge_compact, look_at_compact, look_compact, settle_compact,
    undo_at_compact, undo_compact,
};
pub use delay::{delay, wait_for};
pub use entry::{evict_keyed, freeze, make_keyed, probe_keyed};
pub use key::{KeyFacts, locate};
pub use key_cell::KeyCell;
#[cfg(not(target_arch = "bpf"))]
pub use lease::passes;
pub use lease::undo_lease;
pub use lookup::{most_specific, of_shape};
pub use over::{count_class, over_source};
pub use peek::peek;
pub use plain_tables::{Plain, Row, judge_compact, judge_full, judge_plain, line_up};
pub use plain_wide::{
    attempt_one, charge_others, fail_full, look_at_full, peek_second, set_key, undo_full,
};
pub use refresh::{clear_fresh, is_used, limit_words, refresh, store_fresh, update};
pub use result::{Begun, TableResult};
pub use run::{
    begin, begin_packet, class_range, fail, note_dropped, peek_again, remember_flow, run_tables,
};
pub use scratch::{ACCOUNTS, Account, BANS, REPLIES, SOURCE_CLASS, Scratch};
pub use spend::spend;
pub use target::bucket;
pub use undo::undo_table;
pub use wish::{ask, find_leases, need_leases};
