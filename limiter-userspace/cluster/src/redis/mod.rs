//! Store in Redis 7.0 or newer, or Valkey: scripts (`lease.lua`, `window.lua`, `node.lua`,
//! `queue.lua`) on one server or on those of a Redis Cluster. Calls go out without waiting for each
//! other.
//!
//! A call is made only once. It is sent again only if a server reports that it did nothing: after
//! `NOSCRIPT`, once the script is loaded, and in a cluster after the redirections for keys on other
//! servers.
//!
//! - [`settings`](RedisSettings): where the servers are;
//! - `request` and `reply`: a call and its answer in the form of the scripts;
//! - `connection` and `server`: one server;
//! - `slots` and `router`: a cluster, and which server a call goes to;
//! - `store`: the trait over all of them.
//!
//! Without the feature `redis` only the settings exist, to check files against.

#[cfg(feature = "redis")]
mod connection;
#[cfg(feature = "redis")]
mod reply;
#[cfg(feature = "redis")]
mod request;
#[cfg(feature = "redis")]
mod router;
#[cfg(feature = "redis")]
mod server;
mod settings;
#[cfg(feature = "redis")]
mod slots;
#[cfg(feature = "redis")]
mod store;

pub(super) use self::settings::is_prefix;
pub use self::settings::{Address, LEASE, NODE, QUEUE, RedisSettings, Scripts, Servers, WINDOW};
#[cfg(feature = "redis")]
pub use self::store::RedisStore;
