//! What Envoy's rate limit service says of a descriptor, whether in JSON or over gRPC.

use crate::decide::question::Status;
use crate::decide::unit::Unit;
use crate::doors::check::remaining;
use crate::rules::Terms;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shown<'a> {
    /// True if it is over its limit.
    pub(crate) over: bool,
    /// The limit that is nearest.
    pub(crate) limit: Option<Limit<'a>>,
    /// Requests that would pass now, if that is known.
    pub(crate) remaining: Option<u32>,
    /// Nanoseconds until nothing of the limit is used; none where no time helps.
    pub(crate) reset: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit<'a> {
    /// The name that its author gave its rule.
    pub(crate) name: Option<&'a str>,
    pub(crate) requests_per_unit: u32,
    pub(crate) unit: Option<Unit>,
}

impl<'a> From<&'a Status> for Shown<'a> {
    fn from(status: &'a Status) -> Self {
        let over = status.over;
        if let Some((limit, left)) = &status.nearest {
            // More hits than the limit ever takes at once: no time to come back helps.
            let never = over && left.wait.is_none();
            return Self {
                over,
                limit: Some(Limit {
                    name: status.rule.as_ref().and_then(|rule| rule.written.name.as_deref()),
                    requests_per_unit: narrow(limit.meter.quota().requests_per_unit),
                    unit: Unit::of(limit),
                }),
                remaining: remaining(status, left).map(narrow),
                reset: (!never).then_some(left.reset),
            };
        }
        let blocks = status.rule.as_ref().is_some_and(|rule| matches!(rule.terms, Terms::Block(_)));
        // Over without a limit: nothing passes.
        let remaining = match (status.unlimited, blocks || over) {
            (true, _) => Some(u32::MAX),
            (false, true) => Some(0),
            (false, false) => None,
        };
        Self { over, limit: None, remaining, reset: None }
    }
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
