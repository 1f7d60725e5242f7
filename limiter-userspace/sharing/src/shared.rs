//! Shared limits of a rule set in force: what the rules pass to the node that keeps their leases.

use std::sync::Arc;

use limiter_common::wire::TableKey;

use super::limit::SharedLimit;
use super::window::Window;

/// A limit that nodes share, with its lease in the data path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Name of the limit: its budget, its place there and what it counts. A changed rate or burst
    /// keeps the name. For a limit by key, the name of its rule.
    pub name: Arc<str>,
    /// Identity of the limit over all nodes.
    pub id: SharedId,
    /// Index of the lease in the data path: [`limiter_common::wire::lease_of_budget`], or a key's
    /// lease.
    pub lease: u32,
    /// Numbers of the limit.
    pub terms: SharedTerms,
}

/// All shared limits of a rule set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedSet {
    /// Limits of budgets, which always have leases.
    pub budgets: Vec<Shared>,
    /// Rules by key. Each key has leases while it needs some.
    pub rules: Vec<SharedRule>,
}

impl From<Vec<Shared>> for SharedSet {
    fn from(budgets: Vec<Shared>) -> Self {
        Self { budgets, ..Self::default() }
    }
}

/// Numbers of a shared limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedTerms {
    /// A token or leaky bucket.
    Bucket(SharedLimit),
    /// A quota of a window, which the store accounts for.
    Window {
        /// The window that the store counts.
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

/// Rule by key whose limits nodes share: each key has leases while it needs some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedRule {
    /// Name of the rule: its path.
    pub name: Arc<str>,
    /// Slot of the rule's record, which keys name when they ask.
    pub slot: u32,
    /// Id of the rule's table on this node.
    pub table: u32,
    /// Limits that nodes share, at least one, ordered by place.
    pub limits: Vec<SharedPlace>,
}

/// Limit of a [`SharedRule`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedPlace {
    /// Place of the limit in the record.
    pub place: u32,
    /// Identity of the limit over all nodes: a hash of the rule, the place, and what it counts.
    pub tag: u64,
    /// Numbers of the limit.
    pub terms: SharedTerms,
}

impl SharedRule {
    /// Number of leases that each key of the rule takes.
    pub fn leases(&self) -> u32 {
        self.limits.iter().map(|limit| limit.place + 1).max().unwrap_or(0)
    }

    /// A limit of a key of the rule. `first` is the key's first lease.
    pub fn of_key(&self, limit: &SharedPlace, key: &TableKey, first: u32) -> Shared {
        Shared {
            name: Arc::clone(&self.name),
            id: SharedId::Key { tag: limit.tag, key: TableKey { table: 0, ..*key } },
            lease: first + limit.place,
            terms: limit.terms,
        }
    }

    /// True if keys of `old` may keep their leases under this rule: only the numbers of the limits
    /// differ.
    pub fn goes_on(&self, old: &Self) -> bool {
        let same =
            |(new, old): (&SharedPlace, &SharedPlace)| (new.place, new.tag) == (old.place, old.tag);
        (self.table, self.limits.len()) == (old.table, old.limits.len())
            && self.limits.iter().zip(&old.limits).all(same)
    }
}

/// Identity of a shared limit over all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedId {
    /// A limit with a name: [`Shared::name`].
    Named,
    /// A limit of a key of a rule.
    Key {
        /// Tag of the limit in the store: [`SharedPlace::tag`].
        tag: u64,
        /// The key, without its table.
        key: TableKey,
    },
}

/// Bytes of a key's identity: the tag, and the key without the table's id.
const KEY_ID: usize = size_of::<u64>() + size_of::<TableKey>() - TABLE_ID;

/// Bytes of the table's id, which comes first in a key.
const TABLE_ID: usize = size_of::<u32>();

impl SharedId {
    /// The limit's name in the store, after the two bytes for its kind.
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        match self {
            Self::Named => name.as_bytes().to_vec(),
            Self::Key { tag, key } => {
                let key = bytemuck::bytes_of(key);
                [&tag.to_be_bytes()[..], &key[TABLE_ID..]].concat()
            }
        }
    }

    /// Reads the tag and the key from a key's name in the store.
    pub fn read(name: &[u8]) -> Option<(u64, TableKey)> {
        let id: &[u8; KEY_ID] = name.get(2..)?.try_into().ok()?;
        let (tag, key) = id.split_first_chunk()?;
        let mut whole = [0; size_of::<TableKey>()];
        whole.get_mut(TABLE_ID..)?.copy_from_slice(key);
        Some((u64::from_be_bytes(*tag), bytemuck::pod_read_unaligned(&whole)))
    }
}
