//! What a rule does.

use std::time::Duration;

use limiter_common::wire::{Evidence, Full, OnLoss};

use super::limit::{Meter, RateLimit, RuleLimit};

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
    /// After how long strikes and bans are forgotten.
    pub memory: Duration,
    /// Packets over the limit within [`Ban::memory`] that it takes.
    pub strikes: u32,
    /// What it needs as evidence that the source is not forged.
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

/// What happens to a packet over a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Over {
    /// It is dropped.
    #[default]
    Drop,
    /// It is dropped, and its sender is told.
    Reject,
    /// It passes, marked.
    Mark(Mark),
    /// It is charged to the budget of this name, and passes if that has room.
    Class(String),
    /// It leaves by this interface.
    Interface(String),
    /// This CPU goes on with it.
    Cpu(u32),
    /// It is dropped, and its source may be banned.
    Ban(Ban),
}

impl Over {
    /// Its name in rule files.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Reject => "reject",
            Self::Mark(_) => "mark",
            Self::Class(_) => "class",
            Self::Interface(_) => "interface",
            Self::Cpu(_) => "cpu",
            Self::Ban(_) => "ban",
        }
    }
}

/// The limits of a rule or of a budget, and what happens over them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// One to four; a ceiling counts as one. Any of them trips.
    pub limits: Vec<RuleLimit>,
    /// What happens over them.
    pub over: Over,
    /// Only counted; everything passes. For trying limits out.
    pub shadow: bool,
    /// What happens to packets of sources and keys that get no bucket. A budget has nothing to do with
    /// it.
    pub full: Full,
    /// What becomes of them when the daemon is lost.
    pub on_loss: OnLoss,
}

impl Limits {
    /// Limits that drop what is over them, and nothing else said.
    pub const fn new(limits: Vec<RuleLimit>) -> Self {
        let (full, on_loss) = (Full::Share, OnLoss::Keep);
        Self { limits, over: Over::Drop, shadow: false, full, on_loss }
    }

    /// The rate, if this is one hard token bucket on packets or bytes and nothing else, which stays
    /// in force whether there is a daemon or not.
    pub fn plain(&self) -> Option<RateLimit> {
        match (self.limits.as_slice(), self.on_loss) {
            ([only], OnLoss::Keep) => only.plain(),
            _ => None,
        }
    }
}

/// What a rule does, in full.
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
}

/// What happens to a source that a rule of the source table matches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Its packets pass within the limit, the others are dropped.
    Limit(RateLimit),
    /// Its packets pass; those that would be dropped are counted. For trying a limit out.
    Shadow(RateLimit),
    /// Its packets pass.
    Unlimited,
    /// Anything else. [`Action::new`] makes it only of terms that none of the others can say.
    Terms(Box<Terms>),
}

impl Action {
    /// The simplest form of `terms`.
    pub fn new(terms: Terms) -> Self {
        let simple = match &terms {
            Terms::Unlimited => Some(Self::Unlimited),
            Terms::Limits(Limits {
                limits,
                over: Over::Drop,
                shadow,
                full: Full::Share,
                on_loss: OnLoss::Keep,
            }) => match limits.as_slice() {
                [only] => only
                    .plain()
                    .map(|rate| if *shadow { Self::Shadow(rate) } else { Self::Limit(rate) }),
                _ => None,
            },
            Terms::Limits(_) | Terms::Budget(_) => None,
        };
        simple.unwrap_or_else(|| Self::Terms(Box::new(terms)))
    }

    /// What it does, in full.
    pub fn terms(&self) -> Terms {
        let limits = |rate: &RateLimit, shadow| {
            let limits = vec![RuleLimit::hard(Meter::TokenBucket(*rate))];
            Terms::Limits(Limits { shadow, ..Limits::new(limits) })
        };
        match self {
            Self::Limit(rate) => limits(rate, false),
            Self::Shadow(rate) => limits(rate, true),
            Self::Unlimited => Terms::Unlimited,
            Self::Terms(terms) => (**terms).clone(),
        }
    }

    /// The only limit, whether it is in force or in shadow mode; none when there is more to say.
    pub const fn rate_limit(&self) -> Option<&RateLimit> {
        match self {
            Self::Limit(rate) | Self::Shadow(rate) => Some(rate),
            Self::Unlimited | Self::Terms(_) => None,
        }
    }

    /// How many limits it has.
    pub fn limit_count(&self) -> usize {
        match self {
            Self::Limit(_) | Self::Shadow(_) => 1,
            Self::Unlimited => 0,
            Self::Terms(terms) => terms.limits().map_or(0, |limits| limits.limits.len()),
        }
    }

    /// Whether it only counts.
    pub fn is_shadow(&self) -> bool {
        match self {
            Self::Shadow(_) => true,
            Self::Limit(_) | Self::Unlimited => false,
            Self::Terms(terms) => terms.limits().is_some_and(|limits| limits.shadow),
        }
    }

    /// The same limits in shadow mode; [`Action::Unlimited`] and a budget stay.
    #[must_use]
    pub fn shadowed(self) -> Self {
        match self.terms() {
            Terms::Limits(limits) => Self::new(Terms::Limits(Limits { shadow: true, ..limits })),
            Terms::Unlimited | Terms::Budget(_) => self,
        }
    }
}
