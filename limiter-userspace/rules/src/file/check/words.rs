//! Words and bounds, for the checks and for the schema.

use limiter_common::wire::{Count, Evidence, Full, OnLoss};

pub(in crate::file) const COUNTS: [(&str, Count); 4] = [
    (Count::Packets.name(), Count::Packets),
    (Count::Bytes.name(), Count::Bytes),
    (Count::Syns.name(), Count::Syns),
    (Count::Flows.name(), Count::Flows),
];

/// How it is counted, for [`super::limits::meter`].
pub(in crate::file) const ALGORITHMS: [(&str, &str); 6] = [
    ("token_bucket", "token_bucket"),
    ("leaky_bucket", "leaky_bucket"),
    ("fixed_window", "fixed_window"),
    ("sliding_log", "sliding_log"),
    ("sliding_counter", "sliding_counter"),
    ("sliding_slots", "sliding_slots"),
];

pub(in crate::file) const ON_LOSS: [(&str, OnLoss); 2] =
    [(OnLoss::Keep.name(), OnLoss::Keep), (OnLoss::Shadow.name(), OnLoss::Shadow)];

pub(in crate::file) const FULL: [(&str, Full); 3] = [
    (Full::Share.name(), Full::Share),
    (Full::Pass.name(), Full::Pass),
    (Full::Drop.name(), Full::Drop),
];

pub(in crate::file) const EVIDENCE: [(&str, Evidence); 2] =
    [("established", Evidence::Established), ("none", Evidence::None)];

/// Nodes that limits are of; true for all together.
pub(in crate::file) const SCOPES: [(&str, bool); 2] = [("node", false), ("cluster", true)];

/// When hits are charged.
pub(in crate::file) const CHARGES: [(&str, ()); 1] = [("afterwards", ())];

/// The most strikes that the program counts.
pub(in crate::file) const MOST_STRIKES: u64 = 65_535;

/// Most queues of a file: each has a mover of its own.
pub(in crate::file) const MOST_QUEUES: usize = 64;

/// Most payloads that wait in a queue.
pub(in crate::file) const MOST_DEPTH: u64 = 10_000_000;

/// Most deliveries of a payload.
pub(in crate::file) const MOST_ATTEMPTS: u64 = 1000;
