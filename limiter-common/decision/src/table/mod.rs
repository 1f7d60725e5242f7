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

mod buckets;
mod charges;
pub mod flow;
mod keys;
mod limits;
mod plain_route;
mod result;
mod run;

mod clock;
mod peek;
mod scratch;

pub use buckets::entry::{evict_keyed, freeze, make_keyed, probe_keyed};
pub use buckets::refresh::{clear_fresh, is_used, limit_words, refresh, store_fresh, update};
pub use buckets::target::bucket;
pub use charges::charge::{
    ChargePlan, RecordCharge, charge, charge_planned, charge_record, charge_rest, charge_shared,
    give_back, note_passed, plan_charge,
};
pub use charges::over::{count_class, over_source};
pub use charges::spend::spend;
pub use charges::undo::undo_table;
pub use clock::read_clock;
pub use keys::key::{KeyFacts, locate};
pub use keys::key_cell::KeyCell;
pub use keys::lookup::{most_specific, of_shape};
pub use limits::check::{Check, check_limits};
pub use limits::delay::{delay, wait_for};
#[cfg(not(target_arch = "bpf"))]
pub use limits::lease::passes;
pub use limits::lease::undo_lease;
pub use limits::limit;
pub use limits::wish::{ask, find_leases, need_leases};
pub use peek::peek;
#[cfg(not(target_arch = "bpf"))]
pub use plain_route::compact_row::judge_compact_alone;
pub use plain_route::compact_row::{
    charge_at_compact, charge_compact, look_at_compact, look_compact, settle_compact,
    undo_at_compact, undo_compact,
};
pub use plain_route::plain_tables::{Plain, Row, judge_compact, judge_full, judge_plain, line_up};
pub use plain_route::plain_wide::{
    attempt_one, charge_others, fail_full, look_at_full, plan_second, set_key, undo_full,
};
pub use result::{Begun, TableResult};
pub use run::{
    begin, begin_packet, class_range, fail, note_dropped, peek_again, remember_flow, run_tables,
};
pub use scratch::{ACCOUNTS, Account, BANS, REPLIES, SOURCE_CLASS, Scratch};
