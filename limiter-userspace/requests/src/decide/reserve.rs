//! When a request may go, and the charge of one that waits.
//!
//! A request that waits is charged at once to each of its limits, as of the first moment at which
//! that limit takes it: ahead of time only where the limit itself makes it wait. So others lose by
//! it no more than by a request that goes at once, and it goes when the last of its limits takes
//! it.

use crate::buckets::arithmetic::{LONGEST, give_back, least};
use crate::clock::Moment;
use crate::decide::question::{Answer, Asked, Detail, Refused};
use crate::decide::request::Request;
use crate::decide::reservations::GivenBack;
use crate::decide::target::{By, State, Target};
use crate::limiter::Limiter;
use crate::reports::counters::Unanswered;
use crate::rules::Rules;
use crate::shared::rule::Patience;

/// Tries to reserve while other threads are faster.
const TRIES: usize = 32;

/// The answer to a reservation.
#[derive(Clone, Debug)]
pub struct Reserved {
    /// The answer, as for a request that is decided now.
    pub answer: Answer,
    /// Nanoseconds until the request may go; none if that is too long, and nothing is reserved.
    pub wait: Option<u64>,
    /// Nanoseconds until it may go, if nobody else asks; none if it never may.
    pub needed: Option<u64>,
    /// The name by which it can be given back; none if nothing is charged, or if there are too
    /// many.
    pub id: Option<String>,
}

impl Limiter {
    /// Decides when a request may go, at most `longest` nanoseconds from now, and charges it. One
    /// that may not go within that time is charged to none.
    ///
    /// # Errors
    ///
    /// Why it cannot be decided.
    pub fn reserve(
        &self,
        rules: &Rules,
        asked: &Asked<'_>,
        moment: &Moment,
        longest: u64,
    ) -> Result<Reserved, Refused> {
        // Limits of this node alone make nobody wait.
        let patience = Patience::None(Unanswered::Late);
        let mut tries = 0..TRIES;
        loop {
            let mut request = Request::new(self, rules, asked, moment, patience)?;
            request.targets.iter().flatten().try_for_each(can_say)?;
            // In the second half of its time the clock ends before a bucket is full.
            let needed = least(0, LONGEST / 2, |ahead| !request.is_over_within(ahead));
            let wait = needed.filter(|wait| *wait <= longest);
            // Of one that may not go within that time, the states are those of now.
            let over = request.is_over_within(wait.unwrap_or(0))
                || request.settle().is_err()
                || request.over;
            request.over = over;
            if over && wait.is_some() && tries.next().is_some() {
                // Another thread was faster.
                continue;
            }
            let held = request.targets.iter().flatten().filter_map(|target| {
                let (key, charges) = target.charges().filter(|(_, charges)| !charges.is_empty())?;
                Some((key, target.limits()?.id, charges.clone()))
            });
            let held: Vec<_> = if over { Vec::new() } else { held.collect() };
            let answer = request.answer(asked, Detail::Left);
            let wait = wait.filter(|_| !over);
            let id = match wait {
                Some(wait) if !held.is_empty() => {
                    let until = moment.plus(wait).now.as_nanos();
                    self.reservations.hold(&self.secret, held, until, moment.now.as_nanos())
                }
                _ => None,
            };
            return Ok(Reserved { answer, wait, needed, id });
        }
    }

    /// Gives a reservation back.
    pub fn give_back(&self, id: &str, moment: &Moment) -> GivenBack {
        let held = match self.reservations.take(id, moment.now.as_nanos()) {
            Ok(held) => held,
            Err(otherwise) => return otherwise,
        };
        let all = held.iter().rev().map(|(key, limits, charges)| {
            self.store.take_back(*key, *limits, |words| give_back(words, charges, moment))
        });
        if all.fold(true, |all, one| all & one) { GivenBack::Returned } else { GivenBack::Kept }
    }
}

impl Request<'_> {
    /// True if the request is over its limits so many nanoseconds from now.
    fn is_over_within(&mut self, ahead: u64) -> bool {
        self.at.ahead = ahead;
        for target in self.targets.iter_mut().flatten().filter(|of| of.limits().is_some()) {
            target.state = State::Within;
        }
        self.look().is_err() || self.over
    }
}

/// Says why the limits of a descriptor cannot say when a request may go.
fn can_say(target: &Target<'_>) -> Result<(), Refused> {
    match &target.by {
        By::Leases(_) => Err(Refused::SharedReserve(target.of)),
        By::Queue { .. } => Err(Refused::QueueReserve(target.of)),
        By::Bucket(limits, _) if !limits.limits.are_rates() => Err(Refused::NoRate(target.of)),
        _ => Ok(()),
    }
}
