//! The line table on the host: against a table without bounds, under threads, and at its published
//! load.

#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "../absent/mod.rs"]
mod absent;
mod counts;
mod line_slots;
mod load;
mod maps;
mod properties;
mod threads;
