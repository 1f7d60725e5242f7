//! `cargo xtask bench contention`: what several CPUs get done on the same sources, beside what one
//! does.

mod page;
pub mod run;
mod together;
mod word;
