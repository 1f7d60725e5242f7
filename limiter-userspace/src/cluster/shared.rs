//! Shared limits of a rule set in force: what the rules give to the node that keeps their leases.

use super::limit::SharedLimit;
use super::window::Window;

/// A limit that nodes share, with the lease that it has in the data path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Name of the limit over all nodes: its budget, its place there and what it counts. A changed
    /// rate or burst keeps it.
    pub name: String,
    /// Index of the lease in the data path: [`limiter_common::wire::lease_of_budget`].
    pub lease: u32,
    /// Numbers of the limit.
    pub terms: SharedTerms,
}

/// Numbers of a shared limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedTerms {
    /// A token or leaky bucket.
    Bucket(SharedLimit),
    /// A quota of a window, accounted by the store.
    Window {
        /// Window that the store counts.
        window: Window,
        /// Sync period in microseconds.
        sync: u64,
    },
}

impl SharedTerms {
    /// Sync period in microseconds.
    pub fn sync(&self) -> u64 {
        match self {
            Self::Bucket(limit) => limit.settings().sync,
            Self::Window { sync, .. } => *sync,
        }
    }
}
