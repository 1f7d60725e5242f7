//! What is measured and printed, and asserted nowhere: a busy machine must not fail a test.

pub mod control;
pub mod packets;
pub mod raw_update;
