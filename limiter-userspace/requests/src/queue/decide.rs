//! Decisions by limits that a queue decides.

use limiter_cluster::queue::{QueueAnswer, QueueBecame};
use limiter_rules::file::requests::RequestLimit;

use crate::buckets::arithmetic::{Charges, Left};
use crate::buckets::key::{Key, Secret, hex};
use crate::decide::question::Refused;
use crate::decide::request::Request;
use crate::decide::target::{By, State, Target};
use crate::queue::rule::{Kept, NotQueued, PayloadIn, Queued, RuleQueue};

/// The question to a queue about a request.
pub(crate) struct QueueCall {
    pub(crate) rule: RuleQueue,
    pub(crate) bucket: String,
    pub(crate) hits: u64,
    /// The id of its payload; empty without one.
    pub(crate) id: Box<str>,
}

impl Request<'_> {
    /// The question still to be put to a queue, if the request is within all other limits and is no
    /// look.
    pub(crate) fn queue_call(
        &self,
        payload: Option<PayloadIn<'_>>,
    ) -> Result<Option<QueueCall>, Refused> {
        let found = self.targets.iter().flatten().find_map(|target| match &target.by {
            By::Queue { bucket, .. } => Some((target.hits, bucket, target.rule.queue.clone()?)),
            _ => None,
        });
        let Some((hits, bucket, rule)) = found else { return Ok(None) };
        let length = payload.map_or(0, |payload| payload.text.len());
        let most = rule.queue.settings.payload;
        if u64::try_from(length).map_or(true, |length| length > most) {
            let queue = rule.queue.settings.name.clone();
            return Err(Refused::LongPayload { length, queue, most });
        }
        if self.over || hits == 0 {
            return Ok(None);
        }
        let id = match payload {
            None => String::new(),
            Some(PayloadIn { id: Some(id), .. }) => id.to_owned(),
            // Without randomness nobody could have started.
            Some(PayloadIn { id: None, .. }) => {
                Secret::new().map(|secret| hex(&secret.bytes())).unwrap_or_default()
            }
        };
        Ok(Some(QueueCall { rule, bucket: bucket.clone(), hits, id: id.into() }))
    }

    /// Applies the decision of a queue. A request that it refuses is charged to nothing; if the
    /// payload waits, other limits stay charged: the work will be done.
    pub(crate) fn queue_answered(
        &mut self,
        QueueCall { rule, id, .. }: QueueCall,
        answered: &Result<QueueAnswer, NotQueued>,
        has_payload: bool,
    ) -> Option<Kept> {
        let became = match answered {
            Ok(answer) if answer.became == QueueBecame::Over => None,
            Ok(answer) => Queued::of(answer),
            Err(why) => Some(Err(*why)),
        };
        let state = match (answered, became) {
            (Ok(answer), _) if answer.became == QueueBecame::Within => {
                State::Charged(Key::from_raw([0; 2]), Charges::default(), false)
            }
            (_, Some(Ok(_))) => State::Queued,
            _ => State::Over,
        };
        self.over = !matches!(state, State::Charged(..));
        if state == State::Over {
            self.take_back();
            self.charge_afterwards();
        }
        let unanswered = match answered {
            Err(NotQueued::NoAnswer(why)) => Some(*why),
            _ => None,
        };
        for target in self.targets.iter_mut().flatten() {
            if let By::Queue { answer, .. } = &mut target.by {
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

impl Target<'_> {
    /// What is left of the limits of a rule that a queue decides, as far as that was asked.
    pub(crate) fn left_of_queue(&self) -> Vec<(RequestLimit, Left)> {
        match (&self.rule.queue, &self.by) {
            (Some(rule), By::Queue { limits, answer: Some(answer), .. }) => {
                rule.left(&limits.limits.written(), answer)
            }
            _ => Vec::new(),
        }
    }
}
