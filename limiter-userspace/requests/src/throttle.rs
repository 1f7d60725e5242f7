//! Limits that a command brings with each key, as redis-cell and throttlecrab have them: buckets of
//! the same store, by the same arithmetic, under keys that no rule has.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use limiter_common::wire::Count;
use limiter_rules::compile::LimitError;
use limiter_rules::file::requests::RequestLimit;
use limiter_rules::model::{Meter, Period, Quota, Unit};

use crate::buckets::arithmetic::{Left, Limits, Places};
use crate::buckets::key::{Begun, Key, Secret};
use crate::buckets::store::{KeyLimits, MOST_BROUGHT, NoRoom};
use crate::clock::Moment;
use crate::limiter::Limiter;
use crate::reports::counters::Became;
use crate::reports::refused::Who;
use crate::rules::Rule;

/// The domain and the rule that metrics show. The keys are none of a file's, whatever its names:
/// the text of their identity is empty where a file has its domain, which is not.
pub(crate) const DOMAIN: &str = "(commands)";
const RULE: &str = "CL.THROTTLE";

/// A token bucket that a command brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// Hits that may pass at once.
    pub burst: u64,
    /// Hits in a period.
    pub count: u64,
    /// The period in seconds.
    pub period: u64,
}

/// What a command gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttled {
    /// True if the hits are over the limit. Then none of them is charged.
    pub over: bool,
    /// What is left.
    pub left: Left,
}

/// Reason why a command gets no decision. Nothing is charged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotThrottled {
    /// Not a period that there is.
    #[error("a period of {0} s: write 1 to {most}", most = MOST_SECONDS)]
    Period(u64),
    /// A limit that cannot be held.
    #[error("{0}")]
    Limit(#[from] LimitError),
    /// Too many different limits at once.
    #[error("{MOST_BROUGHT} different limits are in use: use fewer different numbers")]
    ManyLimits,
    /// No room for the key.
    #[error("all {0} keys are in use: wait, or give limiter serve a larger --max-keys")]
    NoRoom(usize),
}

const MOST_SECONDS: u64 = Period::most(Unit::Second);

/// What the limits of commands have in common.
pub(crate) struct Throttles {
    /// What their keys begin with.
    begun: Begun,
    rule: Arc<Rule>,
}

impl Throttles {
    pub(crate) fn new(secret: &Secret) -> Self {
        let mut identity = secret.begin();
        for text in ["", RULE] {
            identity.text(text);
        }
        let identity = identity.end();
        let begun = secret.begin_with(identity);
        let of = (identity, begun.clone());
        Self { begun, rule: Arc::new(Rule::bare(DOMAIN, RULE, of, Arc::default())) }
    }

    /// The rule, and the key of what a command names.
    pub(crate) fn key(&self, key: &[u8]) -> (&Arc<Rule>, Key) {
        let mut begun = self.begun.clone();
        begun.bytes(key);
        (&self.rule, begun.end())
    }

    /// The rule that metrics name, once it counted something.
    pub(crate) fn counted(&self) -> Option<&Arc<Rule>> {
        Some(&self.rule).filter(|rule| rule.counters.any())
    }
}

impl Limiter {
    /// Charges the bucket of a key of commands, if the hits are within its limit; 0 hits only look.
    /// A key whose limit was another one keeps what is left, up to the new burst.
    ///
    /// # Errors
    ///
    /// Why it cannot be decided.
    pub fn throttle(
        &self,
        key: &[u8],
        throttle: &Throttle,
        hits: u64,
        moment: &Moment,
    ) -> Result<Throttled, NotThrottled> {
        let limits = self.limits_of(throttle)?;
        let (rule, key) = self.throttles.key(key);
        let charge = |words: &[AtomicU64], moment: &Moment| {
            let hits = (hits, 0);
            let over =
                hits.0 > 0 && limits.limits.charge(Places::ALL, words, moment, hits).is_err();
            (over, limits.limits.left(0, words, moment, &[hits.0.max(1)]))
        };
        // What never passes takes no room, either.
        let charged = if hits == 0 || hits > throttle.burst {
            Ok(self.store.look(key, &limits, moment, charge))
        } else {
            self.store.charge(key, &limits, moment, false, charge)
        };
        let refuse = || {
            let who = Who { rule, key, aggregate: 0, entries: &[] };
            self.refused.count(who, 1, moment.now);
        };
        let Ok((over, left)) = charged.map_err(|NoRoom| ()) else {
            rule.counters.count(Became::FullRefused, None);
            refuse();
            return Err(NotThrottled::NoRoom(self.store.most()));
        };
        rule.counters.count(if over { Became::Over } else { Became::Within }, None);
        if over {
            refuse();
        }
        self.answers[usize::from(over)].fetch_add(1, Ordering::Relaxed);
        // There is one limit.
        let left = left.unwrap_or(Left { remaining: 0, reset: 0, wait: None });
        Ok(Throttled { over, left })
    }

    fn limits_of(&self, throttle: &Throttle) -> Result<KeyLimits, NotThrottled> {
        let Throttle { burst, count, period } = *throttle;
        let seconds = u32::try_from(period).ok().filter(|_| (1..=MOST_SECONDS).contains(&period));
        let multiplier = seconds.ok_or(NotThrottled::Period(period))?;
        let period = Period { unit: Unit::Second, multiplier };
        let quota = Quota::new(Count::Packets, count, period);
        let limit = RequestLimit::hard(Meter::TokenBucket(quota.with_burst(burst)));
        if let Some(known) = self.store.known_brought(limit) {
            return Ok(known);
        }
        let limits = Limits::compile(&[limit]).map_err(|(_, error)| error)?;
        self.store.brought(limits, false).ok_or(NotThrottled::ManyLimits)
    }
}
