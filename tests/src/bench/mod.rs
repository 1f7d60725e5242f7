//! What is measured and printed, and asserted nowhere in a test: a busy machine must not fail one.
//! `limiter-bench --check` holds the ratios.

pub mod control;
pub mod figure;
pub mod group;
pub mod lines;
pub mod packets;
pub mod raw_update;
