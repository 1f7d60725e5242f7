//! Looks, and reports of what was done since.

use limiter_common::wire::Full as OnFull;

use crate::buckets::arithmetic::Charges;
use crate::buckets::store::Full;
use crate::clock::Moment;
use crate::decide::target::{State, Target};
use crate::limiter::Limiter;

impl Limiter {
    /// Notes looks that passed, and charges reports, whatever became of them as questions: what was
    /// done is done. Hits are a report if the rule says so, or if the request says how many they
    /// are and a look of the same key passed before.
    pub(crate) fn report(&self, targets: &mut [Option<Target<'_>>], over: bool, moment: &Moment) {
        for target in targets.iter_mut().flatten() {
            let Some((limits, key)) = &target.limits else { continue };
            if target.queue.is_some() || target.shared.is_some() {
                continue;
            }
            let hits = target.hits;
            if hits == 0 {
                if !over && matches!(target.state, State::Charged(..)) {
                    self.store.add_look(*key, limits, moment);
                }
                continue;
            }
            let is_report =
                target.rule.afterwards || target.counted && self.store.take_look(*key, moment);
            if !is_report || !matches!(target.state, State::Within | State::Over) {
                continue;
            }
            let report = |key, always| {
                let report = |words: &[_], moment: &_| limits.limits.report(words, moment, hits);
                self.store.charge(key, limits, moment, always, report)
            };
            if report(*key, false) == Err(Full) && target.rule.full == OnFull::Share {
                let key = target.rule.shared_key(self.secret(), target.aggregate);
                // Always is room for this one.
                let _ = report(key, true);
            }
            if target.state == State::Within {
                target.state = State::Charged(*key, Charges::default(), false);
            }
        }
    }
}
