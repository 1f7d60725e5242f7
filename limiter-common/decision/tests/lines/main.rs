//! The line table on the host: against a table without bounds, under threads, and at its published
//! load.

#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "../absent/mod.rs"]
mod absent;
mod counts;
mod load;
mod properties;
mod seats;
mod threads;
mod world;
