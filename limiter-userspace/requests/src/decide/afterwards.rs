//! Looks, and reports of what was done since.

use crate::buckets::arithmetic::Charges;
use crate::decide::request::Request;
use crate::decide::target::{By, State};

impl Request<'_> {
    /// Notes looks that passed, and charges reports, whatever became of them as questions: what was
    /// done is done. Hits are a report if the rule says so, or if the request says how many they
    /// are and a look of the same key passed before.
    pub(crate) fn charge_afterwards(&mut self) {
        let (limiter, moment) = (self.at.limiter, &self.at.moment);
        for target in self.targets.iter_mut().flatten() {
            let By::Bucket(limits, key) = &target.by else { continue };
            let hits = target.hits;
            if hits == 0 {
                if !self.over && matches!(target.state, State::Charged(..)) {
                    limiter.store.add_look(*key, limits, moment);
                }
                continue;
            }
            let is_report = target.rule.written.afterwards
                || target.counted && limiter.store.take_look(*key, moment);
            if !is_report || !matches!(target.state, State::Within | State::Over) {
                continue;
            }
            let of = (&**target.rule, target.aggregate);
            // Without a bucket nothing can be charged.
            let _: Result<_, _> = limiter.charge(of, (limits, *key), moment, |words, moment| {
                limits.limits.report(words, moment, hits);
            });
            if target.state == State::Within {
                target.state = State::Charged(*key, Charges::default(), false);
            }
        }
    }
}
