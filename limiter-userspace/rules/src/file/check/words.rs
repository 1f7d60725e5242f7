//! The words that the checks know, for the schema.

use limiter_common::wire::{Count, Evidence, Full, OnLoss};
use limiter_sharing::OnPartition;

use crate::model::{Direction, Martians};

pub(super) const COUNTS: [(&str, Count); 4] = [
    (Count::Packets.name(), Count::Packets),
    (Count::Bytes.name(), Count::Bytes),
    (Count::Syns.name(), Count::Syns),
    (Count::Flows.name(), Count::Flows),
];

/// How it is counted, for [`super::limits::meter`].
pub(super) const ALGORITHMS: [(&str, &str); 6] = [
    ("token_bucket", "token_bucket"),
    ("leaky_bucket", "leaky_bucket"),
    ("fixed_window", "fixed_window"),
    ("sliding_log", "sliding_log"),
    ("sliding_counter", "sliding_counter"),
    ("sliding_slots", "sliding_slots"),
];

pub(super) const ON_LOSS: [(&str, OnLoss); 2] =
    [(OnLoss::Keep.name(), OnLoss::Keep), (OnLoss::Shadow.name(), OnLoss::Shadow)];

pub(super) const FULL: [(&str, Full); 3] = [
    (Full::Share.name(), Full::Share),
    (Full::Pass.name(), Full::Pass),
    (Full::Drop.name(), Full::Drop),
];

pub(super) const EVIDENCE: [(&str, Evidence); 2] =
    [("established", Evidence::Established), ("none", Evidence::None)];

/// Nodes that limits are of; true for all together.
pub(super) const SCOPES: [(&str, bool); 2] = [("node", false), ("cluster", true)];

fn first<T>(words: &'static [(&'static str, T)]) -> impl Iterator<Item = &'static str> {
    words.iter().map(|(word, _)| *word)
}

pub(in crate::file) fn counts() -> impl Iterator<Item = &'static str> {
    first(&COUNTS)
}

pub(in crate::file) fn algorithms() -> impl Iterator<Item = &'static str> {
    ALGORITHMS.into_iter().map(|(word, _)| word)
}

/// Treatments of packets that get no bucket.
pub(in crate::file) fn full() -> impl Iterator<Item = &'static str> {
    first(&FULL)
}

/// Treatments of a rule without a daemon.
pub(in crate::file) fn on_loss() -> impl Iterator<Item = &'static str> {
    first(&ON_LOSS)
}

/// Evidence that a ban may need.
pub(in crate::file) fn evidence() -> impl Iterator<Item = &'static str> {
    first(&EVIDENCE)
}

/// Treatments of packets whose source no host can have.
pub(in crate::file) fn martians() -> impl Iterator<Item = &'static str> {
    first(&Martians::NAMED)
}

/// Directions of a rule.
pub(in crate::file) fn directions() -> impl Iterator<Item = &'static str> {
    first(&Direction::NAMED)
}

/// Nodes that a budget's limits are of.
pub(in crate::file) fn scope() -> impl Iterator<Item = &'static str> {
    first(&SCOPES)
}

/// Behaviours of a node without contact to the store.
pub(in crate::file) fn on_partition() -> impl Iterator<Item = &'static str> {
    first(&OnPartition::NAMED)
}
