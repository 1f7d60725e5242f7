//! Tables: limits by any facts of a packet, several to a rule, of any algorithm.
//!
//! A table is a list of facts and of masks; they make the key of the bucket, so the bucket is found
//! before any rule is asked. Which rule holds for a key is remembered in the bucket, as in the
//! source table. A packet goes through [`drive`]: it is looked at in every table, then judged by
//! the source table, then charged in every table.
//!
//! The parts of that are steps ([`mod@crate::steps`]): in the kernel each is a function that the
//! verifier proves by itself, so that its work does not multiply.

mod code;
mod drive;
mod entry;
pub mod flow;
mod held;
mod judge;
mod key;
pub mod limit;
mod lookup;
mod over;
mod ready;
mod scratch;
mod sight;
mod spend;
mod weight;

pub use code::Code;
pub use drive::{
    begin, begin_packet, drive, dropped, fail, finish, judge_source, look_again, undo_step,
};
pub use entry::{leave_keyed, probe_keyed};
pub use held::bucket;
pub use judge::{Paid, Prepared, charge, give_back, passed, pay, peek, prepare};
pub use key::{Described, flag_class, locate};
pub use lookup::{most_specific, of_shape};
pub use over::{count_class, over_source};
pub use ready::{clear_fresh, freeze, is_used, limit_words, repair, store_fresh, update};
pub use scratch::{BANS, REPLIES, SOURCE_CLASS, STEPS, Scratch, Step};
pub use sight::{Sight, sight};
pub use spend::spend;
