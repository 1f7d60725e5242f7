//! Limits that several nodes share: the scheme, without kernel and daemon.
//!
//! A node leases units of a shared limit from a store ahead of need, so that no packet waits.
//! `docs/cluster.md` has the scheme, the bound and its proof.
//!
//! - [`rate`] and [`limit`]: a limit's numbers, exact, and what is refused;
//! - [`account`] and [`window`]: what the store does with a key; `lease.lua` and `window.lua` do
//!   the same;
//! - [`key`]: state machine of one key on one node, which drives a lease line;
//! - [`quota`]: that of one window;
//! - [`store`]: the trait, and how answers are read; [`memory`] and `redis` implement it;
//! - [`node`]: the thread that keeps all leases of a node, through the trait [`leases::Leases`];
//!   [`meeting`] and [`change`] are what nodes tell each other, `config` is read from a file.
//!
//! Nothing here depends on the data path or the daemon. [`Shared`] is what a rule set in force has
//! of it.

pub mod account;
pub mod change;
pub mod config;
mod contact;
mod feed;
mod held;
mod hot;
pub mod key;
pub mod leases;
mod ledger;
pub mod limit;
pub mod meeting;
pub mod memory;
pub mod node;
mod pace;
pub mod quota;
mod random;
pub mod rate;
pub mod redis;
mod roster;
mod run;
mod servers;
mod shared;
mod spread;
pub mod status;
pub mod store;
pub mod window;

pub use change::{Change, List};
pub use config::{Config, ConfigError};
pub use leases::Leases;
pub use limit::{OnPartition, Settings, SharedLimit};
pub use node::{Cluster, NodeSettings, Notices};
pub use shared::{Shared, SharedId, SharedPlace, SharedRule, SharedSet, SharedTerms};
pub use status::{Notice, Status};
