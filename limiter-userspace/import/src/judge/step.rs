//! A rule at the moment when it is judged, with everything known about it then.

use limiter_common::wire::Count;
use limiter_rules::model::{Meter, RateLimit};
use limiter_rules::rate_text::MIN_FULL_FRAME;

use crate::barrier::{Barrier, Between};
use crate::difference::Difference;
use crate::firewall::{Case, Hook, Pair, Verdict};
use crate::packets::Packets;

/// Finds the rule that drops what is over a limit. The boolean tells whether it drops nothing else.
pub(crate) type Dropping<'a> = &'a dyn Fn(&Packets) -> Result<Option<(usize, bool)>, String>;

/// Finds what is between the two rules of a pair.
pub(crate) type Paired<'a> = &'a dyn Fn(&Pair) -> Result<Between, String>;

/// The kind of chain, as far as it matters for its rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A chain with a hook; `drops` if its policy drops.
    Base { drops: bool },
    /// A chain that rules jump to.
    Inner,
    /// A chain that rules jump to and that makes no decision.
    Quiet,
}

impl Kind {
    pub(super) const fn is_base(self) -> bool {
        matches!(self, Self::Base { .. })
    }
}

/// A rule at the moment when it is judged.
pub(crate) struct Step<'a> {
    pub(crate) rule: usize,
    pub(crate) case: &'a Case,
    /// Conditions of the rule and of the jumps to it.
    pub(crate) packets: &'a Packets,
    pub(crate) verdict: &'a Verdict,
    pub(crate) hook: Hook,
    pub(crate) priority: i64,
    /// True if packets reach it by several jumps.
    pub(crate) shared: bool,
    pub(crate) kind: Kind,
    pub(crate) barriers: &'a [Barrier],
    /// Finds the rule that drops what is over.
    pub(crate) over: Dropping<'a>,
    /// Finds what is between this rule and the one that notes for it.
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

/// The meter with a burst of at least a whole frame.
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
