//! `cargo xtask bench path` and `tc`: the whole way of a packet over a cable, beside what else
//! drops packets.

pub mod at_tc;
mod capacity;
mod conforming;
pub mod contender;
mod cost;
mod effort;
mod page;
mod programs;
mod ratios;
pub mod run;
mod service;
pub mod stand;
mod steal;
