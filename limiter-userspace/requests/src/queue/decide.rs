//! Decisions by limits that a queue decides.

use limiter_cluster::queue::{QueueAnswer, QueueBecame};

use crate::buckets::arithmetic::Charges;
use crate::buckets::key::{Key, Secret, hex};
use crate::clock::Moment;
use crate::decide::question::{Asked, Refused};
use crate::decide::target::{Settled, State, Target};
use crate::limiter::{self, Limiter};
use crate::queue::rule::{Kept, NotQueued, PayloadIn, RuleQueue, Waits};
use crate::rules::Rules;
use crate::shared::rule::Patience;

/// A request that its queue is to decide.
pub(crate) struct Queued {
    pub(crate) rule: RuleQueue,
    pub(crate) bucket: String,
    pub(crate) hits: u64,
    /// The id of its payload; empty without one.
    pub(crate) id: Box<str>,
}

impl Settled<'_> {
    /// The request that a queue is still to decide, if it is within all other limits and is no
    /// look.
    ///
    /// # Errors
    ///
    /// The payload is too long.
    pub(crate) fn queued(&self, payload: Option<PayloadIn<'_>>) -> Result<Option<Queued>, Refused> {
        let target = self.targets.iter().flatten().find(|target| target.queue.is_some());
        let Some((target, rule)) = target.and_then(|of| Some((of, of.rule.queue.clone()?))) else {
            return Ok(None);
        };
        let length = payload.map_or(0, |payload| payload.text.len());
        let most = rule.queue.settings.payload;
        if u64::try_from(length).map_or(true, |length| length > most) {
            let queue = rule.queue.settings.name.clone();
            return Err(Refused::LongPayload { length, queue, most });
        }
        if self.over || target.hits == 0 {
            return Ok(None);
        }
        let bucket = target.queue.as_ref().map(|(bucket, _)| bucket.clone()).unwrap_or_default();
        let id = match payload {
            None => String::new(),
            Some(PayloadIn { id: Some(id), .. }) => id.to_owned(),
            // Without randomness nobody could have started.
            Some(PayloadIn { id: None, .. }) => {
                Secret::new().map(|secret| hex(&secret.bytes())).unwrap_or_default()
            }
        };
        Ok(Some(Queued { rule, bucket, hits: target.hits, id: id.into() }))
    }
}

impl Limiter {
    /// Decides a request by all limits but that of a queue, which the store decides, and charges
    /// those.
    ///
    /// # Errors
    ///
    /// Why it cannot be decided.
    pub(crate) fn attempt_all_but_queue<'a>(
        &self,
        rules: &Rules,
        asked: &'a Asked<'a>,
        moment: &Moment,
        patience: Patience,
    ) -> Result<Result<Settled<'a>, limiter::Waits>, Refused> {
        let mut targets = self.targets(rules, asked)?;
        let windows = |target: &Target<'_>| {
            target.limits.as_ref().is_some_and(|(limits, _)| !limits.limits.are_rates())
        };
        let windows = targets.iter().flatten().any(windows);
        let moment = if windows { moment.with_wall() } else { *moment };
        let settled = self.settle(&mut targets, &moment, patience);
        Ok(settled.map(|over| {
            self.report(&mut targets, over, &moment);
            Settled { targets, over, moment }
        }))
    }

    /// Takes over what a queue decided about a request. One that it refuses is charged to none; of
    /// one whose payload waits, other limits stay charged: it will be done.
    pub(crate) fn queue_answered(
        &self,
        settled: &mut Settled<'_>,
        queued: Queued,
        answered: &Result<QueueAnswer, NotQueued>,
        has_payload: bool,
    ) -> Option<Kept> {
        let Queued { rule, id, .. } = queued;
        let became = match answered {
            Ok(answer) if answer.became == QueueBecame::Over => None,
            Ok(answer) => Waits::of(answer),
            Err(why) => Some(Err(*why)),
        };
        let state = match (answered, became) {
            (Ok(answer), _) if answer.became == QueueBecame::Within => {
                State::Charged(Key::from_raw([0; 2]), Charges::default(), false)
            }
            (_, Some(Ok(_))) => State::Queued,
            _ => State::Over,
        };
        if state == State::Over {
            self.take_back(&mut settled.targets);
            self.report(&mut settled.targets, true, &settled.moment);
        }
        settled.over = !matches!(state, State::Charged(..));
        let unanswered = match answered {
            Err(NotQueued::NoAnswer(why)) => Some(*why),
            _ => None,
        };
        for target in settled.targets.iter_mut().flatten() {
            if let Some((_, answer)) = &mut target.queue {
                *answer = answered.as_ref().ok().cloned();
                target.state = state.clone();
                target.unanswered = unanswered;
            }
        }
        let became = became.filter(|_| has_payload)?;
        if let Err(why) = became {
            rule.queue.counters.not_queued(why);
        }
        Some(Kept { queue: rule.queue, id, became })
    }
}
