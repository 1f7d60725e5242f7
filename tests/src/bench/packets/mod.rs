//! `cargo xtask bench packets`: nanoseconds a packet, by test-run, beside the least that a program could do.

mod cases;
mod page;
mod ratios;
mod rig;
pub mod run;
mod subject;
