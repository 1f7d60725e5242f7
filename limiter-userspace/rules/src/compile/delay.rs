//! Limits whose packets wait until they conform.

use limiter_common::time::Ticks;
use limiter_common::wire::{Action, ActionKind, MARK_ECN, Record};

use super::error::LimitError;
use super::rule_error::RuleError;
use super::ticks;
use crate::model::{Delay, Limits, Meter};

/// Lets packets wait at the limits of a record. Returns the action of those that wait, if there is
/// one, or all that is wrong.
pub(super) fn delayed(
    delay: Delay,
    limits: &Limits,
    record: &mut Record,
) -> Result<Option<Action>, Vec<RuleError>> {
    let mut errors = Vec::new();
    for (index, limit) in limits.limits.iter().enumerate() {
        let error = match (&limit.upper, &limit.meter) {
            (Some(upper), _) => LimitError::DelayedSoft { upper: upper.name() },
            (None, Meter::TokenBucket(_) | Meter::LeakyBucket { .. }) => continue,
            (None, meter) => LimitError::DelayedWindow { algorithm: meter.algorithm() },
        };
        let several = limits.limits.len() > 1;
        errors.push(RuleError::limit(several.then_some(index + 1), error));
    }
    if limits.sharing.is_some() {
        errors.push(RuleError::DelayShared);
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    for spec in record.limits.iter_mut().take(usize::from(record.count)) {
        *spec = spec.with_longest_wait(Ticks::new(ticks(delay.longest)));
    }
    let marked = Action { kind: ActionKind::Delay as u8, dscp: MARK_ECN, ..Action::default() };
    Ok(delay.ecn.then_some(marked))
}
