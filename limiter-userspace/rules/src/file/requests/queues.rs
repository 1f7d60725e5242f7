//! `queues` of a file for requests, and `action` of the rules that name them.

use std::collections::BTreeMap;
use std::time::Duration;

use limiter_common::wire::Count;
use limiter_sharing::rate::Rate;

use super::super::check::Failure;
use super::super::check::scalar::{at, ranged, text, time};
use super::super::check::words::{MOST_ATTEMPTS, MOST_DEPTH, MOST_QUEUES};
use super::super::error::Problem;
use super::super::place::Place;
use super::super::placed::{Placed, Scalar};
use super::super::shape::{self, OF_LIMITS};
use super::super::table::Written as _;
use super::model::{Queue, RequestFile, RequestTerms};
use crate::model::Meter;
use crate::rate_text;

/// Longest name, in bytes.
const LONGEST_NAME: usize = 64;

/// Longest payload, in bytes: with JSON around it, it fits into the longest body of a request.
const LONGEST_PAYLOAD: u64 = 48 << 10;

/// The shortest age, and the shortest time for a worker.
const SHORTEST: Duration = Duration::from_secs(1);

/// The longest of both.
const LONGEST: Duration = Duration::from_hours(30 * 24);

/// Longest time, in microseconds, in which a limit of a queue may come back: its bucket calculates
/// in integers below 2^52.
const LONGEST_REFILL: u64 = 1 << 50;

/// Microseconds of its rate that a bucket holds at least, for a queue that is as fast as that.
const STEADY: u64 = 20_000;

/// Reads the queues of a file.
pub(super) fn queues(
    raw: &Placed<Option<Vec<Placed<shape::Queue>>>>,
) -> Result<Vec<Queue>, Failure> {
    let list = raw.value.as_deref().unwrap_or_default();
    if list.is_empty() {
        let remedy = "name them, as in `- name: emails`, or remove the field";
        return Err(at(raw.referenced, Problem::Empty { field: "queues", remedy }));
    }
    if list.len() > MOST_QUEUES {
        let (what, reason) = ("queues".to_owned(), "a file has up to 64: use another domain");
        return Err(at(raw.referenced, Problem::NotSupported { what, reason }));
    }
    let mut lines: BTreeMap<Box<str>, u64> = BTreeMap::new();
    let mut queues = Vec::with_capacity(list.len());
    for one in list {
        let queue = queue(one)?;
        let line = queue.place.map_or(1, |place| place.line);
        if let Some(first) = lines.insert(queue.name.clone(), line) {
            let subject = format!("queue {}", queue.name);
            return Err(at(one.referenced, Problem::Duplicate { subject, first }));
        }
        queues.push(queue);
    }
    Ok(queues)
}

fn queue(raw: &Placed<shape::Queue>) -> Result<Queue, Failure> {
    let shape::Queue { name, depth, age, payload, attempts, visibility } = &raw.value;
    let remedy = "name it, as in `- name: emails`: rules and keys of Redis have this name";
    let Some(name) = name else {
        return Err(at(raw.referenced, Problem::Missing { field: "name", remedy }));
    };
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let written = text(name, "name", remedy)?;
    if written.len() > LONGEST_NAME || !written.chars().all(good) {
        let reason = "a queue has a name of up to 64 letters, digits, -, _ and .";
        let what = written.to_owned();
        return Err(at(name.referenced, Problem::NotSupported { what, reason }));
    }
    let default = Queue::new(written);
    let number = |scalar: &Option<Scalar>, field, most, default| match scalar {
        None => Ok(default),
        Some(scalar) => ranged::<u64>(scalar, field, 1..=most),
    };
    let length = |scalar: &Option<Scalar>, field, default| match scalar {
        None => Ok(default),
        Some(scalar) => match time(scalar, field, SHORTEST)? {
            time if time > LONGEST => {
                let text = scalar.value.clone().unwrap_or_default();
                let wrong = "is more than 30 days";
                Err(at(scalar.referenced, Problem::Time { field, text, wrong }))
            }
            time => Ok(time),
        },
    };
    Ok(Queue {
        depth: number(depth, "depth", MOST_DEPTH, default.depth)?,
        age: length(age, "age", default.age)?,
        payload: payload.as_ref().map(bytes).transpose()?.unwrap_or(default.payload),
        attempts: number(attempts, "attempts", MOST_ATTEMPTS, default.attempts)?,
        visibility: length(visibility, "visibility", default.visibility)?,
        place: raw.referenced.place(),
        ..default
    })
}

fn bytes(scalar: &Scalar) -> Result<u64, Failure> {
    let field = "payload";
    let written = text(scalar, field, "write a size like 16KiB, or remove the line")?;
    let size = match written.parse() {
        Ok(bytes) => Ok(bytes),
        Err(_) => rate_text::burst(written, Count::Bytes),
    };
    match size {
        Ok(size) if (1..=LONGEST_PAYLOAD).contains(&size) => Ok(size),
        Ok(_) => {
            let reason = "a payload has 1 B to 48 KiB: keep what is longer elsewhere, and its name \
                          in the queue";
            let what = format!("payload: {written}");
            Err(at(scalar.referenced, Problem::NotSupported { what, reason }))
        }
        Err(error) => {
            Err(at(scalar.referenced, Problem::RateText { field, error: Box::new(error) }))
        }
    }
}

/// Refuses what a rule with a queue cannot say beside it.
pub(super) fn beside(
    name: &Scalar,
    raw: &shape::Descriptor,
    terms: &RequestTerms,
) -> Result<Box<str>, Failure> {
    let remedy = "name one of `queues`, as in `action: {queue: emails}`";
    let written = text(name, "queue", remedy)?;
    let beside =
        |field: &&str| *field == "budget" || *field != "action" && OF_LIMITS.contains(field);
    if let Some((field, place)) = raw.written().find(|(field, _)| beside(field)) {
        return Err(at(place, Problem::Beside(field, "queue")));
    }
    let refused = |reason| {
        let what = format!("queue: {written}");
        Err(at(name.referenced, Problem::NotSupported { what, reason }))
    };
    let limits = match terms {
        RequestTerms::Limits(limits) => limits,
        RequestTerms::Block(_) => {
            return refused(
                "with `requests_per_unit: 0` nothing would ever leave it: write a rate",
            );
        }
        // `action` beside it is refused before.
        RequestTerms::Unlimited => &[][..],
    };
    if limits.iter().any(|limit| limit.written.is_soft) {
        return refused("it has one rate at which requests leave it: remove `ceiling`");
    }
    for limit in limits.iter().map(|limit| limit.written) {
        let room = match limit.meter {
            Meter::TokenBucket(rate) => rate.burst,
            Meter::LeakyBucket { .. } => 1,
            _ => {
                return refused(
                    "only a token or a leaky bucket says when the next one may leave it: remove \
                     `algorithm`, or the queue",
                );
            }
        };
        let quota = limit.meter.quota();
        let micros = quota.period.seconds().saturating_mul(1_000_000);
        let rate = Rate::new(quota.requests_per_unit, micros);
        if rate.is_none_or(|rate| rate.micros_of(room) > LONGEST_REFILL) {
            return refused("its rate is out of range: write 1 a week to 10^9 a second");
        }
    }
    Ok(written.into())
}

/// Refuses rules that name a queue that is not there, and says which queues no rule names.
pub(super) fn named(file: &mut RequestFile) -> Vec<Failure> {
    let there = |name: &str| file.queues.iter().any(|queue| &*queue.name == name);
    let mut failures = Vec::new();
    let (mut used, mut notes) = (Vec::new(), Vec::new());
    for (_, rule) in file.rules() {
        let Some((name, place)) = &rule.queue else { continue };
        used.push(name.clone());
        if !there(name) {
            let what = format!("queue: {name}");
            let reason = "there is no queue of this name: add it, as in `queues: [{name: emails}]`";
            let failure: (Option<Place>, _) = (*place, Problem::NotSupported { what, reason });
            if !failures.contains(&failure) {
                failures.push(failure);
            }
        }
    }
    for (_, rule) in file.rules() {
        let (Some((name, _)), RequestTerms::Limits(limits)) = (&rule.queue, &rule.terms) else {
            continue;
        };
        let is_small = |limit: &super::ReadyLimit| {
            let meter = limit.written.meter;
            let quota = meter.quota();
            let micros = quota.period.seconds().saturating_mul(1_000_000);
            let room = match meter {
                Meter::TokenBucket(rate) => {
                    Rate::new(quota.requests_per_unit, micros).map(|r| r.micros_of(rate.burst))
                }
                Meter::LeakyBucket { backlog, .. } => u64::try_from(backlog.as_micros()).ok(),
                _ => None,
            };
            let is_fast = quota.requests_per_unit.saturating_mul(STEADY) > micros;
            is_fast && room.is_some_and(|room| room < STEADY)
        };
        if limits.iter().any(is_small) {
            notes.push(super::Note {
                place: rule.place,
                text: format!(
                    "less than 20 ms of the rate may leave the queue {name} at once, so it may be \
                     slower than the rate: write a larger burst or backlog for all of it"
                ),
            });
        }
    }
    notes.extend(short(file));
    let unused = file.queues.iter().filter(|queue| !used.contains(&queue.name));
    notes.extend(unused.map(|queue| super::Note {
        place: queue.place,
        text: format!(
            "no rule fills the queue {}: what waits in it still leaves, at the rate that it had \
             last",
            queue.name
        ),
    }));
    file.notes.extend(notes);
    failures
}

/// Says which queues keep nothing for as long as the next one takes to leave them.
fn short(file: &RequestFile) -> Vec<super::Note> {
    let note = |rule: &super::RequestRule| {
        let (name, _) = rule.queue.as_ref()?;
        let RequestTerms::Limits(limits) = &rule.terms else { return None };
        let queue = file.queues.iter().find(|queue| queue.name == *name)?;
        let apart = |limit: &super::ReadyLimit| {
            let quota = limit.written.meter.quota();
            Duration::from_nanos(quota.period.nanos().div_ceil(quota.requests_per_unit.max(1)))
        };
        let apart = limits.iter().map(apart).max().filter(|apart| *apart > queue.age)?;
        let apart = Duration::from_secs(apart.as_secs() + u64::from(apart.subsec_nanos() > 0));
        let [age, apart] = [queue.age, apart].map(humantime::format_duration);
        Some(super::Note {
            place: rule.place,
            text: format!(
                "one leaves every {apart} at this rate, and the queue {name} keeps nothing for \
                 longer than {age}, so most of what would have to wait is refused: write \
                 `age: {apart}` or more"
            ),
        })
    };
    file.rules().into_iter().filter_map(|(_, rule)| note(rule)).collect()
}
