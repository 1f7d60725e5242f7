//! Store in Redis 7.0 or newer, or Valkey: scripts (`lease.lua`, `window.lua`, `node.lua`,
//! `queue.lua`) on one server, or on those of a Redis Cluster. Calls go out without waiting for
//! each other.
//!
//! A call is made once, whatever happens: it is sent again only where a server says that nothing
//! was done, which are `NOSCRIPT`, after the script was loaded, and in a cluster the words for keys
//! that are elsewhere.
//!
//! - [`settings`](RedisSettings): where the servers are;
//! - `request` and `reply`: a call and its answer, as the scripts have them;
//! - `connection` and `server`: one server;
//! - `slots` and `router`: a cluster, and which server a call goes to;
//! - `store`: the trait over all of them.
//!
//! Without the feature `redis` there are the settings alone, which files are checked against.

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
