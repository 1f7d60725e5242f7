//! Why the store gives no answer to a call or for a key.

/// A key of the store that has limiter's name but was made by something else. limiter leaves it
/// alone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{key} in the store is not what limiter keeps there (WRONGTYPE): delete it, or give limiter \
     another `prefix`"
)]
pub struct Foreign {
    /// Full name of the key, or the names among which it is.
    pub key: String,
}

/// Why there is no answer. What the store did is unknown, unless the variant says so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is no connection, or it broke.
    #[error("no contact to the store: {0}")]
    Lost(String),
    /// There is no connection, and it is too early to reconnect: nothing was done.
    #[error("no contact to the store: next attempt in {0} ms")]
    Waits(u64),
    /// The answer did not come in time.
    #[error("the store did not answer within {0} ms")]
    Late(u64),
    /// The store refuses: out of memory, read-only, loading, not permitted.
    #[error("the store refuses: {0}{remedy}", remedy = more_memory(_0))]
    Refused(String),
    /// Something else made a key that the whole call needs: nothing was done.
    #[error(transparent)]
    Foreign(#[from] Foreign),
    /// No answer of the script has this form.
    #[error("answer of the store is wrong: {0}")]
    Wrong(&'static str),
    /// The batch has too many keys, or a name is too long.
    #[error("batch is wrong: {0}")]
    Batch(&'static str),
}

/// The remedy for a store without memory.
fn more_memory(refusal: &str) -> &'static str {
    if refusal.contains("OOM") {
        ": raise its maxmemory, or remove something else from it"
    } else {
        ""
    }
}

impl StoreError {
    /// True if the store was reached and answered, so that a retry alone is useless.
    pub const fn is_answer(&self) -> bool {
        match self {
            Self::Refused(_) | Self::Foreign(_) | Self::Wrong(_) | Self::Batch(_) => true,
            Self::Lost(_) | Self::Waits(_) | Self::Late(_) => false,
        }
    }
}
