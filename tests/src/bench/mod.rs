//! What is measured and printed, and asserted nowhere in a test: a busy machine must not fail one.
//! `limiter-bench --check` holds the ratios.

pub mod contention;
pub mod control;
pub mod crowd;
pub mod daemon;
pub mod figure;
pub mod group;
pub mod lines;
pub mod memory;
pub mod packets;
pub mod path;
pub mod process;
