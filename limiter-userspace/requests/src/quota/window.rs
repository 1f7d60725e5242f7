//! Parts of what is left: of windows and logs, and of limits that nodes share.

use limiter_rules::file::requests::{ReadyLimit, RequestLimit};
use limiter_rules::model::Meter;
use smallvec::smallvec;

use super::rate::in_time;
use super::{Bucket, Held, NEVER, SECOND, Strategy};
use crate::buckets::arithmetic::Left;
use crate::buckets::key::Key;
use crate::clock::Moment;
use crate::decide::question::{Asked, Descriptor};
use crate::decide::request::Request;
use crate::limiter::Limiter;
use crate::reports::counters::Unanswered;
use crate::rules::EntryOf;
use crate::shared::rule::Patience;

/// A window of less than this is handed out whole: the next report would come too late.
const SHORT: u64 = 20 * SECOND;

/// Part of what is left that somebody gets of whom nothing is known.
const FIRST: u64 = 64;

impl Held {
    /// Charges a part of what is left of limits that are no rates, or that cannot be charged ahead.
    /// Returns how the client may use it, and true if that is a new bucket.
    pub(super) fn assign_of_what_is_left(
        &mut self,
        key: Key,
        asked: &Bucket<'_>,
    ) -> (Strategy, bool) {
        let Bucket { limiter, limits, moment, .. } = *asked;
        let parties = u64::try_from(self.meet(key, asked).len()).unwrap_or(u64::MAX).max(1);
        let length = |limit: &ReadyLimit| limit.written.meter.quota().period.nanos();
        let window = limits.limits.hard().filter(|limit| !limit.spec.is_rate()).map(length).min();
        let is_short = window.is_some_and(|window| window < SHORT);
        if let (true, Some((last, _))) = (is_short && self.until != u64::MAX, self.given) {
            return (last, false);
        }
        let needed = in_time(self.demand, window.unwrap_or(u64::MAX).min(2 * self.interval));
        let (had, demand) = (self.hits, self.demand);
        let wanted = |left: u64| {
            let part = left / parties;
            let (first, most) = if is_short { (part / 2, part) } else { (part / FIRST, part / 4) };
            let most = needed.max(first).min(most);
            let most = most.max(u64::from(demand > 0));
            u64::try_from(i128::from(most) - i128::from(had)).unwrap_or(0)
        };
        let (hits, ends_in) = charge_now(limiter, asked.domain, asked.entries, wanted, moment);
        self.hits = self.hits.saturating_add_unsigned(hits);
        let lasts = ends_in.or((hits > 0).then(|| window.unwrap_or(self.life)));
        if let Some(lasts) = lasts {
            self.until = moment.now.as_nanos().saturating_add(lasts);
        }
        self.meet(key, asked);
        let Ok(all @ 1..) = u64::try_from(self.hits) else { return (Strategy::DenyAll, false) };
        match self.given {
            // It goes on with what it has left.
            Some((last @ Strategy::Bucket { .. }, _)) if hits == 0 => (last, false),
            _ => {
                let most = u32::try_from(all).unwrap_or(u32::MAX);
                (Strategy::Bucket { most, per_fill: 1, seconds: NEVER }, true)
            }
        }
    }
}

/// Charges hits of one descriptor, as many as `wanted` says of those that are left, or fewer.
/// Nothing counts them. Returns also the nanoseconds until the window ends in which they count.
fn charge_now(
    limiter: &Limiter,
    domain: &str,
    entries: &[EntryOf<'_>],
    wanted: impl FnOnce(u64) -> u64,
    moment: &Moment,
) -> (u64, Option<u64>) {
    let (moment, rules) = (&moment.with_wall(), limiter.rules());
    let patience = Patience::None(Unanswered::Late);
    let entries = entries.into();
    let descriptors = smallvec![Descriptor { entries, ..Descriptor::default() }];
    let mut asked = Asked { domain, descriptors, hits: 1 };
    let left = |asked: &Asked<'_>| {
        let request = Request::new(limiter, &rules, asked, moment, patience);
        request.map_or_else(|_| Vec::new(), |request| request.left())
    };
    let remaining = left(&asked).iter().map(|(_, left)| left.remaining).min().unwrap_or(0);
    let mut hits = wanted(remaining).min(remaining);
    while hits > 0 {
        asked.hits = hits;
        let Ok(mut request) = Request::new(limiter, &rules, &asked, moment, patience) else {
            break;
        };
        if request.settle().is_ok() && !request.over {
            break;
        }
        // Somebody was faster.
        hits /= 2;
    }
    let fixed = |(limit, left): (RequestLimit, Left)| {
        matches!(limit.meter, Meter::FixedWindow(_)).then_some(left.reset)
    };
    (hits, left(&asked).into_iter().filter_map(fixed).filter(|reset| *reset > 0).min())
}
