//! Settings of the store: where its servers are, and how they are used.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The script for leases, as sent to the server.
pub const LEASE: &str = include_str!("lease.lua");
/// The script for windows, as sent to the server.
pub const WINDOW: &str = include_str!("window.lua");
/// The script for the reports of nodes, as sent to the server.
pub const NODE: &str = include_str!("node.lua");

/// The script for queues, as sent to the server.
pub const QUEUE: &str = include_str!("queue.lua");

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    /// A unix socket.
    Unix(PathBuf),
    /// TCP without encryption: only for a private network.
    Tcp {
        /// Name or address.
        host: String,
        /// TCP port of the server.
        port: u16,
    },
    /// TCP with TLS; the server's name is checked.
    Tls {
        /// Name that the certificate must have.
        host: String,
        /// TCP port of the server.
        port: u16,
        /// File with the trusted certificates, PEM; `None` for those of the system.
        authority: Option<PathBuf>,
    },
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Tcp { host, port } | Self::Tls { host, port, .. } if host.contains(':') => {
                write!(f, "[{host}]:{port}")
            }
            Self::Tcp { host, port } | Self::Tls { host, port, .. } => write!(f, "{host}:{port}"),
        }
    }
}

/// Servers of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Servers {
    /// One server; after a fail-over another one may have its address.
    One(Address),
    /// Redis Cluster: some of its servers, each of which knows all others. At least one, by TCP or
    /// TLS.
    Cluster(Vec<Address>),
}

/// Settings of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisSettings {
    /// Servers of the store.
    pub servers: Servers,
    /// User of the servers' access lists; `None` for the default user.
    pub user: Option<String>,
    /// File with the password, read at each connection. A newline at its end is ignored.
    pub password: Option<PathBuf>,
    /// First part of all keys: 1 to 32 letters, digits, `-` and `_`, and the suffix of
    /// [`RedisSettings::of_requests`].
    pub prefix: String,
    /// Longest time for a call, connecting included.
    pub timeout: Duration,
    /// The scripts: [`LEASE`], [`WINDOW`], [`NODE`] and [`QUEUE`], except in tests with their own
    /// clock.
    pub scripts: Scripts,
}

/// Lua scripts that Redis runs, one for each kind of call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scripts {
    /// Script for limits that are leased.
    pub lease: String,
    /// Script for limits that count in windows.
    pub window: String,
    /// Script for the reports of nodes.
    pub node: String,
    /// Script for queues.
    pub queue: String,
}

impl Default for Scripts {
    fn default() -> Self {
        Self {
            lease: LEASE.to_owned(),
            window: WINDOW.to_owned(),
            node: NODE.to_owned(),
            queue: QUEUE.to_owned(),
        }
    }
}

/// Suffix of the prefix for requests: they have other nodes and rules than packets, and one file
/// and one server user are enough for both.
const OF_REQUESTS: &str = ":requests";

impl RedisSettings {
    /// The same servers for limits of requests, with separate nodes, rules and accounts.
    #[must_use]
    pub fn of_requests(self) -> Self {
        Self { prefix: format!("{}{OF_REQUESTS}", self.prefix), ..self }
    }

    /// True if the prefix is valid for keys.
    #[cfg(feature = "redis")]
    pub(super) fn has_prefix(&self) -> bool {
        is_prefix(self.prefix.strip_suffix(OF_REQUESTS).unwrap_or(&self.prefix))
    }
}

/// True if a file may contain this prefix.
pub(crate) fn is_prefix(prefix: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    (1..=32).contains(&prefix.len()) && prefix.chars().all(good)
}
