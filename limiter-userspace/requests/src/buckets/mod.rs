//! Buckets: the arithmetic over the words of one, the store of all, and their snapshot on disk.

pub(crate) mod arithmetic;
pub(crate) mod key;
pub(crate) mod looks;
pub(crate) mod snapshot;
pub(crate) mod state;
pub(crate) mod store;
