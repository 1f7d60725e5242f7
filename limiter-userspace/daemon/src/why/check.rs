//! `GET /v1/check`: the same answer in a form for proxies.

use limiter_api::check::Checked;
use limiter_api::explain::ExplainLimit;
use limiter_api::lists::ListName;
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::Listed;

use super::Found;
use super::in_force::InForce;
use super::question::Question;
use super::steps::BY_SOURCE;
use crate::error::ServiceError;

impl InForce<'_> {
    /// The outcome for a packet, or for the next packet of a source if the question is about a
    /// source.
    pub(crate) fn check(&self, question: &Question) -> Result<Checked, ServiceError> {
        let found = self.find(question)?;
        let mut reason = found.judged.outcome.reason;
        if reason == Reason::Rejected && !question.is_of_packet() {
            // Whether a refusal may be answered depends on the packet.
            reason = Reason::OverLimit;
        }
        let passes = matches!(reason.verdict(), Verdict::Pass);
        let retry = found.wait.map(|wait| seconds(wait.as_nanos_rounded_up()).max(1));
        let mut checked = Checked {
            source: found.selector.to_string(),
            passes,
            reason: reason.name().to_owned(),
            listed: found.looked.listed.and_then(|(listed, _)| match listed {
                Listed::Allow => Some(ListName::Allow),
                Listed::Deny => Some(ListName::Deny),
                Listed::Management => None,
            }),
            retry_after_seconds: retry.filter(|_| !passes),
            exact: found.is_exact(),
            ..Checked::default()
        };
        match reason {
            Reason::Denied | Reason::Banned | Reason::Martian => {
                (checked.limit, checked.remaining) = (Some(0), Some(0));
                checked.reset_in_seconds = checked.retry_after_seconds;
            }
            Reason::Bypass | Reason::Allowed => {}
            _ => checked = found.with_limit(checked),
        }
        checked.not_looked_at = found.not_looked_at;
        checked.not_looked_at.extend(found.assumed);
        Ok(checked)
    }
}

impl Found {
    /// Adds the deciding limit: for a dropped packet the limit that drops it, otherwise the limit
    /// with the least left.
    fn with_limit(&self, checked: Checked) -> Checked {
        let reached = || self.steps.iter().filter(|step| step.reported.reached);
        let source = reached().find(|step| step.reported.step == BY_SOURCE);
        let deciding = self.decided().filter(|_| !checked.passes);
        let of = deciding.or(source).map(|step| &step.reported);
        let all =
            reached().flat_map(|step| &step.reported.limits).filter(|limit| limit.size.is_some());
        let limit = match deciding {
            Some(step) => step.reported.limits.iter().find(|limit| !limit.conforms),
            None => all.min_by_key(|limit| (limit.remaining, limit.size)),
        };
        let checked = Checked {
            rule: of.and_then(|step| step.rule.clone()),
            action: of.and_then(|step| step.action.clone()),
            ..checked
        };
        let Some(ExplainLimit { count, size: Some(size), remaining, full_in_ns, .. }) = limit
        else {
            return checked;
        };
        Checked {
            count: Some(count.clone()),
            limit: Some(*size),
            remaining: Some(*remaining),
            reset_in_seconds: full_in_ns.map(seconds),
            ..checked
        }
    }
}

/// Whole seconds, rounded up.
fn seconds(nanos: u64) -> u64 {
    nanos.div_ceil(1_000_000_000)
}
