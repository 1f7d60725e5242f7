//! Questions and answers.

use std::sync::Arc;

use limiter_rules::file::requests::RequestLimit;
use smallvec::SmallVec;

use crate::buckets::arithmetic::Left;
use crate::queue::rule::Kept;
use crate::rules::{EntryOf, Rule};

/// Descriptors of one request: envoy sends a handful.
pub const MAX_DESCRIPTORS: usize = 1024;

/// A request for a decision.
#[derive(Clone, Debug, Default)]
pub struct Asked<'a> {
    /// Name of the rules to apply.
    pub domain: &'a str,
    /// What the request is about.
    pub descriptors: SmallVec<[Descriptor<'a>; 1]>,
    /// Hits of each descriptor that states none; 0 stands for 1.
    pub hits: u64,
}

/// A part of a request that a rule may limit.
#[derive(Clone, Debug, Default)]
pub struct Descriptor<'a> {
    /// Keys and values.
    pub entries: SmallVec<[EntryOf<'a>; 2]>,
    /// Hits of this descriptor; 0 only looks.
    pub hits: Option<u64>,
    /// A limit that takes the place of the rule's.
    pub limit: Option<RequestLimit>,
}

/// Reason why a request cannot be decided. Nothing is charged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No domain.
    #[error("domain is missing: name the domain of a rule file")]
    NoDomain,
    /// Nothing to decide.
    #[error("descriptors is empty: name what is asked for, as in [{{\"entries\": [...]}}]")]
    NoDescriptors,
    /// More than is decided at once.
    #[error("{0} descriptors are more than {MAX_DESCRIPTORS}: ask for fewer at once")]
    TooMany(usize),
    /// A reservation under a limit that cannot say when a request may go.
    #[error(
        "descriptor {0} falls under a limit that is no token or leaky bucket: only those say when a \
         request may go"
    )]
    NoRate(usize),
    /// A reservation under a limit that nodes share.
    #[error(
        "descriptor {0} falls under a limit with `scope: cluster`, of which no node can say when a \
         request may go: ask /json, or remove the field"
    )]
    SharedReserve(usize),
    /// A reservation under a rule with a queue.
    #[error(
        "descriptor {0} falls under a rule with a queue, in whose turn requests may go: ask /json"
    )]
    QueueReserve(usize),
    /// A payload that is too long.
    #[error("the payload has {length} bytes, and the queue {queue} takes up to {most}: shorten it")]
    LongPayload {
        /// Bytes of the payload.
        length: usize,
        /// Name of the queue.
        queue: Box<str>,
        /// The most that it takes.
        most: u64,
    },
}

/// The answer to a request.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// True if the request is over a limit.
    pub over: bool,
    /// One for each descriptor.
    pub statuses: SmallVec<[Status; 1]>,
    /// What a queue did with the payload, if one was asked.
    pub(crate) kept: Option<Kept>,
}

/// The answer for one descriptor.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the answer")]
pub struct Status {
    /// The rule that applies, unless another one replaces it.
    pub rule: Option<Arc<Rule>>,
    /// True if it is over a limit that counts.
    pub over: bool,
    /// True if it passes over a soft limit.
    pub over_soft: bool,
    /// The limit that is nearest, and what is left of it.
    pub nearest: Option<(RequestLimit, Left)>,
    /// All limits, and what is left of them.
    pub limits: Vec<(RequestLimit, Left)>,
    /// True if nothing limits it.
    pub unlimited: bool,
    /// True if other nodes use the same limits: this node knows only its own lease.
    pub leased: bool,
}

/// What a caller wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// The decision alone.
    Decision,
    /// What is left of the limits, too.
    Left,
}
