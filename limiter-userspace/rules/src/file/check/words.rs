//! The words that the checks know, for the schema.

use limiter_sharing::OnPartition;

use super::{actions, limits, sharing};
use crate::model::Martians;

fn first<T>(words: &'static [(&'static str, T)]) -> impl Iterator<Item = &'static str> {
    words.iter().map(|(word, _)| *word)
}

/// Units of a count.
pub(in crate::file) fn counts() -> impl Iterator<Item = &'static str> {
    first(&limits::COUNTS)
}

/// How it is counted.
pub(in crate::file) fn algorithms() -> impl Iterator<Item = &'static str> {
    limits::ALGORITHMS.into_iter().map(|(word, _)| word)
}

/// Treatments of packets that get no bucket.
pub(in crate::file) fn full() -> impl Iterator<Item = &'static str> {
    first(&actions::FULL)
}

/// Treatments of a rule without a daemon.
pub(in crate::file) fn on_loss() -> impl Iterator<Item = &'static str> {
    first(&actions::ON_LOSS)
}

/// Evidence that a ban may need.
pub(in crate::file) fn evidence() -> impl Iterator<Item = &'static str> {
    first(&actions::EVIDENCE)
}

/// Treatments of packets whose source no host can have.
pub(in crate::file) fn martians() -> impl Iterator<Item = &'static str> {
    first(&Martians::NAMED)
}

/// Nodes that a budget's limits are of.
pub(in crate::file) fn scope() -> impl Iterator<Item = &'static str> {
    first(&sharing::SCOPES)
}

/// Behaviours of a node without contact to the store.
pub(in crate::file) fn on_partition() -> impl Iterator<Item = &'static str> {
    first(&OnPartition::NAMED)
}
