//! Limits that several nodes share: the scheme, without kernel and daemon.
//!
//! A node leases units of a shared limit from a store ahead of need, so that no packet waits.
//! `docs/cluster.md` has the scheme, the bound and its proof.
//!
//! - [`rate`] and [`limit`]: a limit's numbers, exact, and what is refused;
//! - [`account`] and [`window`]: what the store does with a key; `lease.lua` and `window.lua` do
//!   the same;
//! - [`key`]: state machine of one key on one node, which drives a lease line;
//! - [`store`]: the trait, and how answers are read; [`memory`] and `redis` implement it.
//!
//! Nothing here depends on the data path or the daemon. [`Shared`] is what a rule set in force has
//! of it.

pub mod account;
pub mod key;
mod ledger;
pub mod limit;
pub mod memory;
pub mod rate;
#[cfg(feature = "cluster")]
pub mod redis;
mod shared;
pub mod store;
pub mod window;

pub use limit::{OnPartition, Settings, SharedLimit};
pub use shared::{Shared, SharedTerms};
