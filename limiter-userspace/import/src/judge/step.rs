//! A rule when its turn comes, with all that is known of it then.

use limiter_common::wire::Count;
use limiter_rules::model::{Meter, RateLimit};
use limiter_rules::rate_text::MIN_FULL_FRAME;

use crate::barrier::{Barrier, Between};
use crate::difference::Difference;
use crate::firewall::{Case, Hook, Pair, Verdict};
use crate::packets::Packets;

/// Looks for the rule that drops what is over a limit, and says whether it drops nothing else.
pub(crate) type Dropping<'a> = &'a dyn Fn(&Packets) -> Result<Option<(usize, bool)>, String>;

/// Looks for what stands between the two rules of a pair.
pub(crate) type Paired<'a> = &'a dyn Fn(&Pair) -> Result<Between, String>;

/// A chain, as far as its rules are judged by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One with a hook; true if its policy drops.
    Base { drops: bool },
    /// One that rules jump to.
    Inner,
    /// One that rules jump to, and that decides on nothing.
    Quiet,
}

impl Kind {
    pub(super) const fn is_base(self) -> bool {
        matches!(self, Self::Base { .. })
    }
}

/// A rule when its turn comes, with all that is known of it.
pub(crate) struct Step<'a> {
    pub(crate) rule: usize,
    pub(crate) case: &'a Case,
    /// Conditions of the rule and of the jumps to it.
    pub(crate) packets: &'a Packets,
    pub(crate) verdict: &'a Verdict,
    pub(crate) hook: Hook,
    pub(crate) priority: i64,
    /// True if packets come to it by several jumps.
    pub(crate) shared: bool,
    pub(crate) kind: Kind,
    pub(crate) barriers: &'a [Barrier],
    /// Looks for the rule that drops what is over.
    pub(crate) over: Dropping<'a>,
    /// Looks for what stands between it and the rule that notes for it.
    pub(crate) between: Paired<'a>,
}

pub(super) fn of_hook(hook: Hook) -> Vec<Difference> {
    match hook {
        Hook::Input => vec![Difference::Hook(
            "there only packets to this host are meant; here also those that it forwards",
        )],
        Hook::Forward => vec![Difference::Hook(
            "there only packets that are forwarded are meant, after the translation of addresses; \
             here all that come in, before it",
        )],
        _ => Vec::new(),
    }
}

/// The meter with a burst of a whole frame at least.
pub(super) fn with_room(meter: Meter, differences: &mut Vec<Difference>) -> Meter {
    match meter {
        Meter::TokenBucket(rate @ RateLimit { count: Count::Bytes, burst, .. })
            if burst < MIN_FULL_FRAME =>
        {
            differences.push(Difference::Frame);
            Meter::TokenBucket(RateLimit { burst: MIN_FULL_FRAME, ..rate })
        }
        meter => meter,
    }
}
