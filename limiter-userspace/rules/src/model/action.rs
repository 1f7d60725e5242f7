//! Actions and terms of a rule.

use std::ops::RangeInclusive;
use std::time::Duration;

use limiter_common::wire::{Count, Evidence, Full, OnLoss};

use super::limit::{LimitList, Quota, RateLimit};
use super::sharing::Sharing;
use super::traffic::Meeting;

/// How a packet is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mark {
    /// With a DSCP of 0 to 63.
    Dscp(u8),
    /// With ECN's congestion mark.
    Ecn,
}

/// A ban of the source for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ban {
    /// How long the first one is; each further one is twice as long.
    pub first: Duration,
    /// How long a ban is at most.
    pub longest: Duration,
    /// Time after which strikes and bans are forgotten.
    pub memory: Duration,
    /// Packets over the limit within [`Ban::memory`] that lead to a ban.
    pub strikes: u32,
    /// Evidence that the ban needs that the source is not forged.
    pub evidence: Evidence,
}

impl Default for Ban {
    fn default() -> Self {
        Self {
            first: Duration::from_mins(1),
            longest: Duration::from_hours(24),
            memory: Duration::from_hours(1),
            strikes: 100,
            evidence: Evidence::Established,
        }
    }
}

/// A wait until a packet conforms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Delay {
    /// The longest wait, whole milliseconds from 1 ms to 2 s: a packet that would have to wait
    /// longer is dropped.
    pub longest: Duration,
    /// True if a packet that waits at least half as long gets ECN's congestion mark.
    pub ecn: bool,
}

impl Delay {
    /// Range of [`Delay::longest`]: the program has no room for more, and TCP takes a packet that
    /// is as late for lost.
    pub const WAITS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(2);
}

/// Action on a packet over a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Over {
    /// The packet is dropped.
    #[default]
    Drop,
    /// The packet is dropped, and its sender is notified.
    Reject,
    /// The packet passes, marked.
    Mark(Mark),
    /// The packet is charged to the budget of this name, and passes if that has room.
    Class(String),
    /// The packet leaves by this interface.
    Interface(String),
    /// This CPU goes on with it.
    Cpu(u32),
    /// The packet is dropped, and its source may be banned. Boxed: most rules have none.
    Ban(Box<Ban>),
    /// The packet waits until it conforms.
    Delay(Delay),
}

impl Over {
    /// Name of the action in rule files.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Reject => "reject",
            Self::Mark(_) => "mark",
            Self::Class(_) => "class",
            Self::Interface(_) => "interface",
            Self::Cpu(_) => "cpu",
            Self::Ban(_) => "ban",
            Self::Delay(_) => "delay",
        }
    }
}

/// The limits of a rule or of a budget, and what happens over them. A rule without limits drops
/// everything, or rejects it: a block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Limits, any of which trips.
    pub limits: LimitList,
    /// Action over the limits.
    pub over: Over,
    /// Only counted; everything passes. For trying limits out.
    pub shadow: bool,
    /// Treatment of packets of sources and keys that get no bucket. A budget has nothing to do with
    /// it.
    pub full: Full,
    /// Treatment of the limits when the daemon is lost.
    pub on_loss: OnLoss,
    /// How nodes share the limits; `None` if each node has them by itself. Boxed: most rules have
    /// none.
    pub sharing: Option<Box<Sharing>>,
}

impl Limits {
    /// Limits that drop what is over them, and nothing else said.
    pub fn new(limits: impl Into<LimitList>) -> Self {
        Self {
            limits: limits.into(),
            over: Over::Drop,
            shadow: false,
            full: Full::Share,
            on_loss: OnLoss::Keep,
            sharing: None,
        }
    }

    /// True if a packet over one of the limits, among those of `meeting`, can be evidence for a
    /// ban. A SYN cannot.
    pub fn can_have_evidence(&self, meeting: Meeting) -> bool {
        let counts_others =
            self.limits.iter().any(|limit| limit.meter.quota().count != Count::Syns);
        meeting.evidence && (self.limits.is_empty() || counts_others)
    }

    /// The most packets of one bucket that wait at once, where packets wait at all. Of bytes, as
    /// many of the smallest frames.
    pub fn most_waiting(&self) -> Option<u64> {
        /// Bytes of the smallest frame of Ethernet, without the checksum.
        const SMALLEST: u128 = 60;
        let Over::Delay(delay) = &self.over else {
            return None;
        };
        let of = |quota: Quota| {
            let units = u128::from(quota.requests_per_unit) * delay.longest.as_nanos();
            let units = units.div_ceil(u128::from(quota.period.nanos()));
            let bytes = matches!(quota.count, Count::Bytes);
            let packets = if bytes { units.div_ceil(SMALLEST) } else { units };
            u64::try_from(packets).unwrap_or(u64::MAX)
        };
        // Of several limits the tightest one holds them back; which that is depends on the packets.
        self.limits.iter().map(|limit| of(limit.meter.quota())).max()
    }

    /// The rate, if this is one hard token bucket on packets or bytes and nothing else, which stays
    /// in force whether there is a daemon or not, and is this node's alone.
    pub const fn plain(&self) -> Option<RateLimit> {
        match (self.on_loss, &self.sharing) {
            (OnLoss::Keep, None) => self.limits.plain(),
            _ => None,
        }
    }
}

/// Terms of a rule, in full.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Terms {
    /// Everything passes.
    Unlimited,
    /// The packets are charged to the budget of this name.
    Budget(String),
    /// Each key has a bucket of its own.
    Limits(Limits),
}

impl Terms {
    /// The limits, unless they are a budget's.
    pub const fn limits(&self) -> Option<&Limits> {
        match self {
            Self::Limits(limits) => Some(limits),
            Self::Unlimited | Self::Budget(_) => None,
        }
    }

    /// True if the rule only counts. A budget may do so; its rules do not say.
    pub fn is_shadow(&self) -> bool {
        self.limits().is_some_and(|limits| limits.shadow)
    }
}

impl From<Limits> for Terms {
    fn from(limits: Limits) -> Self {
        Self::Limits(limits)
    }
}

impl From<RateLimit> for Terms {
    fn from(rate: RateLimit) -> Self {
        Self::Limits(Limits::new(rate))
    }
}
