//! Hard and soft limits: what is over the limit passes, marked and counted, up to a ceiling.
//!
//! A hard limit is one limit by itself. A soft one is two of any algorithm: the *ceiling* is asked
//! first and charges everything that passes, then the *limit* says whether it passes unmarked.
//!
//! * Guarantee: all that passes keeps the ceiling's bound, what passes unmarked the limit's bound.
//! * A packet over the ceiling is charged to neither. One over the limit is charged to the ceiling
//!   alone: it does not push the limit further into debt, so marks end as soon as a hard limit
//!   would pass packets again.
//! * State and cost: those of both limits. No interleaving breaks a bound, because each limit is
//!   charged by its own exchange and nothing is ever given back. A limit that is contended marks.
//! * The compile step refuses a ceiling whose rate is below the limit's: nothing would be marked.

use crate::algorithm::Charged;
use crate::algorithm::two_rate::Colour;

/// The result of charging a packet to a ceiling and a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grade {
    /// Within the limit.
    Within,
    /// Over the limit, under the ceiling: passes marked.
    Over,
    /// Over the ceiling.
    Refused,
    /// Refused because the ceiling could not be charged; see [`Charged::Contended`].
    Contended,
}

impl Grade {
    /// True if the packet passes.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn passes(self) -> bool {
        matches!(self, Self::Within | Self::Over)
    }

    /// The grade as a marker's colour.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn colour(self) -> Colour {
        match self {
            Self::Within => Colour::Green,
            Self::Over => Colour::Yellow,
            Self::Refused | Self::Contended => Colour::Red,
        }
    }
}

/// Grades a packet. The closures charge it to the ceiling and to the limit.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn grade(ceiling: impl FnOnce() -> Charged, limit: impl FnOnce() -> Charged) -> Grade {
    match ceiling() {
        Charged::Over => Grade::Refused,
        Charged::Contended => Grade::Contended,
        Charged::Conforming => match limit() {
            Charged::Conforming => Grade::Within,
            Charged::Over | Charged::Contended => Grade::Over,
        },
    }
}
