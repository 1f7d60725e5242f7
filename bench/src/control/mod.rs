//! `cargo xtask bench control`: how long it takes from the command line to active, and back.

mod page;
mod raw;
pub(super) mod rules;
pub mod run;
mod sets;
mod sources;
mod traffic;
mod under_way;
