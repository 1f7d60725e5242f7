//! A queue in force, the rules that fill it, and what became of a request that it decided.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use limiter_cluster::queue::{
    Moved, QueueAnswer, QueueBecame, QueueLimit, Room, Turned, most_hits,
};
use limiter_rules::RuleFileError;
use limiter_rules::file::Problem;
use limiter_rules::file::requests::{Queue, ReadyLimit, RequestFile, RequestLimit, RequestTerms};
use limiter_rules::model::Meter;
use limiter_sharing::rate::Rate;

use crate::buckets::arithmetic::Left;
use crate::buckets::key::{digest, hex};
use crate::reports::counters::Unanswered;

#[derive(Debug)]
pub(crate) struct InForce {
    pub(crate) settings: Queue,
    /// Rules that fill it: the tag and the limits of each.
    pub(crate) rules: Vec<(Box<str>, Vec<QueueLimit>)>,
    pub(crate) counters: Arc<QueueCounters>,
}

/// The part of a rule that a queue decides.
#[derive(Clone, Debug)]
pub(crate) struct RuleQueue {
    pub(crate) queue: Arc<InForce>,
    /// The rule among those of the queue: 16 digits.
    pub(crate) tag: Box<str>,
    pub(crate) limits: Arc<[QueueLimit]>,
}

pub(crate) fn tag(domain: &str, path: &str) -> Box<str> {
    let digest = digest(&["limiter queue", domain, path], std::iter::empty::<&str>());
    hex(digest.as_ref().get(..8).unwrap_or_default()).into()
}

/// Limits as the store has them; none if one is no token or leaky bucket, which the reader of files
/// refuses.
pub(crate) fn limits(limits: &[ReadyLimit]) -> Option<Vec<QueueLimit>> {
    let limit = |ReadyLimit { written: limit, .. }: &ReadyLimit| {
        let quota = limit.meter.quota();
        let micros = quota.period.seconds().checked_mul(1_000_000)?;
        let room = match limit.meter {
            Meter::TokenBucket(rate) => Room::Burst(rate.burst),
            Meter::LeakyBucket { backlog, .. } => {
                Room::Backlog(u64::try_from(backlog.as_micros()).ok()?)
            }
            _ => return None,
        };
        Some(QueueLimit { rate: Rate::new(quota.requests_per_unit, micros)?, room })
    };
    limits.iter().map(limit).collect()
}

impl RuleQueue {
    /// The bucket of some values in the store.
    pub(crate) fn bucket(&self, values: impl Iterator<Item: AsRef<str>>) -> String {
        let digest = digest(&["limiter bucket"], values);
        format!("{}{}", self.tag, hex(digest.as_ref().get(..16).unwrap_or_default()))
    }

    /// Most hits of a request that may ever pass.
    pub(crate) fn most_hits(&self) -> u64 {
        most_hits(&self.limits)
    }

    /// What is left of the limits.
    pub(crate) fn left(
        &self,
        written: &[RequestLimit],
        answer: &QueueAnswer,
    ) -> Vec<(RequestLimit, Left)> {
        let all = written.iter().zip(self.limits.iter()).zip(&answer.used);
        let left = all.map(|((written, limit), used)| {
            let left = Left {
                remaining: limit.remaining(*used).min(written.amount()),
                reset: used.saturating_mul(1000),
                wait: Some(answer.wait.saturating_mul(1000)),
            };
            (*written, left)
        });
        left.collect()
    }
}

/// A payload that a request brings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PayloadIn<'a> {
    pub(crate) text: &'a str,
    /// The caller's name for it.
    pub(crate) id: Option<&'a str>,
}

/// Why a payload does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotQueued {
    Full,
    TooLong,
    /// It has more hits than its limit holds.
    Never,
    NoAnswer(Unanswered),
}

impl NotQueued {
    /// Names in metrics, in the order of [`NotQueued::number`].
    const NAMES: [&str; 4] = ["full", "too_long", "never", "no_answer"];

    const fn number(self) -> usize {
        match self {
            Self::Full => 0,
            Self::TooLong => 1,
            Self::Never => 2,
            Self::NoAnswer(_) => 3,
        }
    }
}

/// What a queue did with the payload of a request.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) queue: Arc<InForce>,
    pub(crate) id: Box<str>,
    pub(crate) became: Result<Queued, NotQueued>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queued {
    /// Payloads that leave earlier, and nanoseconds until this one leaves; none if it was queued
    /// before.
    pub(crate) place: Option<(u64, u64)>,
}

impl Queued {
    /// What an answer of the store says of a payload; none if the request is within the limits.
    pub(crate) fn of(answer: &QueueAnswer) -> Option<Result<Self, NotQueued>> {
        Some(match answer.became {
            QueueBecame::Within => return None,
            QueueBecame::Queued { ahead } => {
                Ok(Self { place: Some((ahead, answer.wait.saturating_mul(1000))) })
            }
            QueueBecame::QueuedBefore => Ok(Self { place: None }),
            QueueBecame::TooLong => Err(NotQueued::TooLong),
            QueueBecame::Full | QueueBecame::Over => Err(NotQueued::Full),
        })
    }
}

impl Kept {
    /// Why the payload does not wait, for the caller.
    pub(crate) fn refused(&self) -> Option<String> {
        let Queue { name, depth, age, .. } = &self.queue.settings;
        let why = self.became.err()?;
        Some(match why {
            NotQueued::Full => {
                format!("the queue {name} is full, {depth} wait: ask again later")
            }
            NotQueued::TooLong => {
                let age = humantime::format_duration(*age);
                format!("it would wait in the queue {name} for longer than {age}: ask again later")
            }
            NotQueued::Never => {
                "it has more hits than its limit holds, and could never leave: ask with fewer"
                    .to_owned()
            }
            NotQueued::NoAnswer(Unanswered::Late) => format!(
                "the queue {name} did not answer in time, and may have it: ask again with the same \
                 id"
            ),
            NotQueued::NoAnswer(Unanswered::NoContact) => format!(
                "the queue {name} cannot be reached, or refuses: ask again later, with the same \
                 id; the log has the reason"
            ),
            NotQueued::NoAnswer(Unanswered::Overload) => {
                format!("too many requests wait for the queue {name}: ask again later")
            }
        })
    }
}

#[derive(Debug, Default)]
pub(crate) struct QueueCounters {
    not_queued: [AtomicU64; NotQueued::NAMES.len()],
    /// The latest turn, and what all of them counted.
    turned: Mutex<(Turned, Moved)>,
}

impl QueueCounters {
    pub(crate) fn not_queued(&self, why: NotQueued) {
        self.not_queued[why.number()].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn turn(&self, turned: &Turned) {
        let mut held = self.turned.lock().unwrap_or_else(PoisonError::into_inner);
        held.0 = *turned;
        held.1.add(&turned.moved);
    }

    pub(crate) fn turned(&self) -> Turned {
        self.turned.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    pub(crate) fn moved(&self) -> Moved {
        self.turned.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    /// Payloads that were not queued, by the reason.
    pub(crate) fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NotQueued::NAMES.into_iter().zip(self.not_queued.iter().map(get))
    }
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// The queues of all files, with the rules that fill each.
pub(crate) fn in_force(
    files: &[(String, RequestFile)],
    before: &[Arc<InForce>],
) -> Result<Vec<Arc<InForce>>, RuleFileError> {
    let mut first: HashMap<&str, String> = HashMap::new();
    let mut all = Vec::new();
    for (name, file) in files {
        let rules_of = |of: &str| {
            let rules = file.rules().into_iter();
            let rules = rules
                .filter(|(_, rule)| rule.queue.as_ref().is_some_and(|(queue, _)| &**queue == of));
            rules
                .filter_map(|(levels, rule)| {
                    let RequestTerms::Limits(written) = &rule.terms else { return None };
                    let path: Vec<String> = levels.iter().map(ToString::to_string).collect();
                    Some((tag(&file.domain, &path.join(" ")), limits(written)?))
                })
                .collect::<Vec<_>>()
        };
        for settings in &file.queues {
            let at = settings.place.map_or_else(String::new, |place| format!(":{place}"));
            if let Some(first) = first.insert(&settings.name, format!("{name}{at}")) {
                let subject = format!("queue {}", settings.name);
                let problem = Problem::Elsewhere { subject, first };
                return Err(RuleFileError { file: name.clone(), place: settings.place, problem });
            }
            let old = before.iter().find(|old| old.settings.name == settings.name);
            all.push(Arc::new(InForce {
                settings: settings.clone(),
                rules: rules_of(&settings.name),
                counters: old.map_or_else(Arc::default, |old| Arc::clone(&old.counters)),
            }));
        }
    }
    Ok(all)
}
