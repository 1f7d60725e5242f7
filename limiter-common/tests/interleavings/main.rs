//! Every interleaving of a bounded number of packets and one rule change on one bucket, by loom,
//! over the decision that the XDP program runs. The memory model is that of the host's `Cell`:
//! acquire loads, acquire-release exchanges.

#![expect(clippy::unwrap_used, reason = "a poisoned lock is a failed test")]

#[path = "../absent/mod.rs"]
mod absent;
mod changes;
mod charges;
mod evictions;
mod leases;
mod lines;
mod lines_world;
mod meters;
mod stale;
mod tables;
mod tables_world;
mod world;
