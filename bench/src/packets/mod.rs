//! `cargo xtask bench packets`: nanoseconds a packet, by test-run, beside the least that a program
//! could do.

pub(super) mod cases;
mod page;
mod ratios;
pub(super) mod rig;
pub mod run;
