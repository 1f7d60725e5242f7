//! Every interleaving of a bounded number of packets and one rule change on one bucket, by loom,
//! over the decision that the XDP program runs. The memory model is that of the program for arm64:
//! plain loads, exchanges that acquire and release when they store, and fences
//! (`docs/design/line-table.md`, "The order of memory").

#![expect(clippy::unwrap_used, reason = "a poisoned lock is a failed test")]

#[path = "../absent/mod.rs"]
mod absent;
mod changes;
mod charges;
mod compact;
mod evictions;
mod leases;
mod lines;
mod lines_maps;
mod maps;
mod meters;
mod stale;
mod tables;
mod tables_maps;
