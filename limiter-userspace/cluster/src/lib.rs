//! Limits that several nodes share: the store, and the thread that calls it. `limiter-sharing` has
//! the arithmetic.
//!
//! A node leases units of a shared limit from a store ahead of need, so that no packet waits.
//! `docs/cluster.md` has the scheme and the bound, `docs/design/cluster.md` the proof.
//!
//! - [`store`]: the trait, and how answers are read; [`memory`] and `redis` implement it;
//! - [`node`]: the thread that keeps all leases of a node, through the trait
//!   [`limiter_sharing::Leases`]; [`membership`] and [`change`] are what nodes report to each
//!   other, `config` is read from a file.
//!
//! - [`queue`]: payloads of requests that wait in the store; [`keeping`]: how the store keeps them.
//!
//! The feature `redis` contains the Redis client. Without it there is no store to share limits
//! over, and [`Config::load`] rejects every file.
//!
//! Nothing here depends on the data path or the daemon.

pub mod change;
pub mod config;
pub mod keeping;
pub mod membership;
pub mod memory;
pub mod node;
pub mod queue;
mod queue_store;
mod random;
pub mod redis;
mod run;
mod settings;
pub mod sign;
pub mod status;
pub mod store;
mod store_error;

pub use change::{Change, List};
pub use config::{Config, ConfigError};
pub use node::{Cluster, Notices};
pub use queue_store::QueueStore;
pub use settings::NodeSettings;
pub use sign::Keys;
pub use status::{Notice, Status};
