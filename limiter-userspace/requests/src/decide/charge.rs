//! A charge to the bucket of a key, which may have no room for one.

use std::sync::atomic::AtomicU64;

use limiter_common::wire::Full;

use crate::buckets::key::Key;
use crate::buckets::store::{KeyLimits, NoRoom};
use crate::clock::Moment;
use crate::limiter::Limiter;
use crate::rules::Rule;

/// A bucket that was charged, and the result.
pub(crate) struct Charge<R> {
    pub(crate) key: Key,
    /// True if it is the one that all keys without room share.
    pub(crate) is_shared: bool,
    pub(crate) result: R,
}

/// There is no bucket, and the rule says what becomes of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoBucket {
    Passes,
    Refused,
}

impl Limiter {
    /// Charges the bucket of a key, or that of keys without room, if the rule has one. `aggregate`
    /// is the number of the aggregate of the rule, or 0 for its own limits.
    pub(crate) fn charge<R>(
        &self,
        (rule, aggregate): (&Rule, u64),
        (limits, key): (&KeyLimits, Key),
        moment: &Moment,
        charge: impl Fn(&[AtomicU64], &Moment) -> R,
    ) -> Result<Charge<R>, NoBucket> {
        let of = |key, is_shared| {
            let result = self.store.charge(key, limits, moment, is_shared, &charge);
            result.map(|result| Charge { key, is_shared, result })
        };
        of(key, false).or_else(|NoRoom| match rule.written.full {
            Full::Pass => Err(NoBucket::Passes),
            Full::Drop => Err(NoBucket::Refused),
            Full::Share => {
                // There is always room for this one.
                let key = rule.shared_key(aggregate);
                of(key, true).map_err(|NoRoom| NoBucket::Refused)
            }
        })
    }
}
