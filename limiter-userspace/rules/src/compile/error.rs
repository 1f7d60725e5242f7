//! Errors of a limit.

use limiter_common::wire::Count;

use crate::dialect::Dialect;
use crate::rate_text::ZERO;

/// Why a limit cannot be held, or not exactly enough.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// A rate of zero, which would pass nothing.
    #[error("{ZERO}")]
    ZeroRate,
    /// Less than one frame.
    #[error("a burst of {burst} {what} lets no packet pass: give at least {least}", what = what(*.count))]
    BurstTooSmall {
        /// The burst asked for.
        burst: u64,
        /// The least that works.
        least: u64,
        /// Unit of the count.
        count: Count,
    },
    /// The clock's grain would be more than 1 % of a packet.
    #[error("{rate} is faster than can be held to 1 %: the fastest is {fastest}")]
    TooFast {
        /// The rate asked for.
        rate: String,
        /// The fastest rate that can be held.
        fastest: &'static str,
    },
    /// Bytes at a rate for packets.
    #[error("{rate} is slower than one byte in 18 minutes: limit packets instead")]
    TooSlow {
        /// The rate asked for.
        rate: String,
    },
    /// Longer than the state can hold.
    #[error("a burst of {burst} at {rate} takes more than 2 years to refill: lower the burst")]
    BurstTooLong {
        /// The burst asked for.
        burst: u64,
        /// Rate of the limit, in words.
        rate: String,
    },
    /// Less than one frame in a window.
    #[error(
        "{rate} lets no frame pass in its window: give at least {least} {what}, or a token bucket",
        what = what(*.count)
    )]
    WindowTooSmall {
        /// The rate asked for.
        rate: String,
        /// The least that works.
        least: u64,
        /// Unit of the count.
        count: Count,
    },
    /// The count does not fit its word.
    #[error("{rate} is more than a window can count, {most}: use a token bucket or a shorter unit")]
    WindowTooLarge {
        /// The rate asked for.
        rate: String,
        /// The largest limit of this window.
        most: u64,
    },
    /// Not a number of slots that there is.
    #[error("a sliding window of {0} slots: give 2, 4 or 8")]
    Slots(u8),
    /// A `sliding_log` that counts bytes: it keeps a time for each packet.
    #[error("{0}: a log keeps packets, not bytes: use sliding slots or a token bucket")]
    LogOfBytes(String),
    /// More stamps than a key may have.
    #[error(
        "{rate} needs more than the {most} stamps of a log: use sliding slots or a token bucket"
    )]
    LogTooLarge {
        /// The rate asked for.
        rate: String,
        /// The most that a log holds.
        most: u8,
    },
    /// Longer than the state can hold.
    #[error("a backlog of {0:?} is more than 2 years: lower it")]
    BacklogTooLong(std::time::Duration),
    /// Two limits of one marker that count different things.
    #[error("{lower} and {upper} count different things: give both in packets or both in bytes")]
    DifferentCounts {
        /// The committed limit.
        lower: String,
        /// The one above it.
        upper: String,
    },
    /// A peak or ceiling below what it is over.
    #[error("the upper rate {upper} is below the lower one, {lower}: raise it or swap the two")]
    UpperBelowLower {
        /// The committed limit.
        lower: String,
        /// The one above it.
        upper: String,
    },
    /// A marker over another algorithm.
    #[error("{upper} needs a token bucket below it: use ceiling, or remove the algorithm")]
    MarkerOverOther {
        /// `peak` or `excess`.
        upper: &'static str,
    },
    /// More limits than a rule may have.
    #[error("{limits} limits: a rule has at most 4, and a ceiling, peak or excess counts as one")]
    TooManyLimits {
        /// So many.
        limits: usize,
    },
    /// More state than a key may have.
    #[error(
        "needs {needed} of the {words} words of a key, and the limits before it leave {left}: \
         use sliding slots, a smaller log, or fewer limits"
    )]
    TooManyWords {
        /// Words that the limit needs.
        needed: u8,
        /// Words that are left.
        left: usize,
        /// All words of a key.
        words: usize,
    },
    /// Marks that differ.
    #[error(
        "marks another way than the limit before it: a rule marks in one way, so give one mark"
    )]
    TwoMarks,
    /// A soft limit whose packets are to wait.
    #[error("{upper} lets packets over the limit pass: remove it, or write `action: drop`")]
    DelayedSoft {
        /// `ceiling`, `peak` or `excess`.
        upper: &'static str,
    },
    /// A limit that does not say when the next packet conforms, and packets are to wait.
    #[error(
        "`action: delay` needs a limit that says when the next packet conforms, and {algorithm} \
         does not: write `algorithm: token_bucket` or `leaky_bucket`, or `action: drop`"
    )]
    DelayedWindow {
        /// Name of the algorithm.
        algorithm: &'static str,
    },
    /// A soft limit over several nodes.
    #[error("{upper} makes a limit soft, which nodes cannot share: remove it, or `scope: cluster`")]
    SharedSoft {
        /// `ceiling`, `peak` or `excess`.
        upper: &'static str,
    },
    /// Sliding slots over several nodes.
    #[error(
        "sliding_slots cannot be shared by nodes: use token_bucket, or sliding_counter of a minute \
         or longer, or remove `scope: cluster`"
    )]
    SharedSlots,
    /// A window that is too short to be shared.
    #[error("{0} is shorter than the minute that a window of nodes has: use a token bucket")]
    SharedShortWindow(String),
    /// A window that is too long to be shared.
    #[error("{0} is longer than the 50 days that a window of nodes has at most: use a shorter one")]
    SharedLongWindow(String),
    /// A window has no share that the store could keep back.
    #[error(
        "{0} is a window, which has no share to keep back, so a partition adds to it: write \
         `on_partition: closed` beside strict, or remove strict"
    )]
    SharedStrictWindow(String),
    /// A bucket by key that is open without contact: a key that no node has promoted yet is
    /// judged by what a node holds without a lease.
    #[error(
        "{0} by key cannot be `on_partition: open`: each node would give every key the whole \
         limit, also while all is well. Leave it out, for the share of a node; `open` is for \
         budgets, for rules without keys, and for windows"
    )]
    SharedOpenKeys(String),
    /// A rate that the store cannot calculate with.
    #[error("{0} cannot be shared by nodes: give at least one in 50 days, and less than 2^42")]
    SharedRate(String),
    /// The rate would not be reached, or a packet never pass.
    #[error(
        "a burst of {burst} {what} is too small for nodes to share: it has to hold two sync periods \
         of the rate and the largest {}, and where strict the shares, too: give at least {least}, or \
         a shorter sync",
        .dialect.noun(),
        what = .dialect.units(what(*.count))
    )]
    SharedBurst {
        /// The burst asked for.
        burst: u64,
        /// The least burst that is enough.
        least: u64,
        /// Unit of the count.
        count: Count,
        /// Dialect of the rules.
        dialect: Dialect,
    },
    /// A backlog that is too short, as such a burst.
    #[error(
        "the backlog of {rate} is too short for nodes to share: it has to hold two sync periods, and \
         where strict the shares, too: give at least {}, or a shorter sync",
        humantime::format_duration(*.least)
    )]
    SharedBacklog {
        /// The rate asked for.
        rate: String,
        /// The least backlog that is enough.
        least: std::time::Duration,
    },
    /// More than the store can count.
    #[error("a burst of {0} is more than nodes can share, 2^51: lower it")]
    SharedBurstTooLarge(u64),
    /// A strict limit of which nothing is left.
    #[error("strict with a share of 100% leaves nothing to lease: give at most 99.9%")]
    SharedWhole,
    /// Anything else that the nodes cannot share.
    #[error("cannot be shared by nodes: {0}")]
    Shared(#[from] limiter_sharing::limit::LimitError),
}

impl LimitError {
    /// The error in words of a dialect.
    pub(super) fn of(mut self, of: Dialect) -> Self {
        if let Self::SharedBurst { dialect, .. } = &mut self {
            *dialect = of;
        }
        self
    }
}

const fn what(count: Count) -> &'static str {
    match count {
        Count::Packets => "packets",
        Count::Bytes => "bytes",
        Count::Syns => "SYNs",
        Count::Flows => "flows",
    }
}
