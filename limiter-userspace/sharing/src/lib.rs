//! Limits that several nodes share: their arithmetic, and the state of one key on one node.
//! `docs/cluster.md` has the scheme and the bound, `docs/design/cluster.md` the proof;
//! `limiter-cluster` talks to the store.
//!
//! - [`rate`] and [`limit`]: a limit's exact numbers, and which of them are rejected;
//! - [`clock`]: the clock with which the kernel compares times;
//! - [`account`] and [`window`]: what the store does with a key;
//! - [`cap`]: the most that a node takes of it;
//! - [`key`]: state machine of one key on one node, which drives a lease line;
//! - [`quota`]: the same for one window;
//! - [`leases`]: the lease lines of a node, which the data path reads.

pub mod account;
pub mod cap;
pub mod clock;
pub mod fnv;
pub mod key;
pub mod leases;
pub mod ledger;
pub mod limit;
pub mod pace;
pub mod quota;
pub mod rate;
mod shared;
pub mod socket_file;
pub mod spread;
pub mod window;

pub use leases::Leases;
pub use limit::{OnPartition, Settings, SharedLimit};
pub use shared::{Shared, SharedId, SharedPlace, SharedRule, SharedSet, SharedTerms};
