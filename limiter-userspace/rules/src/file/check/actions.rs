//! `action`, `mark` and `ban`, for packets and for requests.

use std::time::Duration;

use limiter_common::wire::{Evidence, Full, OnLoss};

use super::checked::Failure;
use super::scalar::{at, named_number, one_of, ranged, text, time};
use super::words::{EVIDENCE, FULL, MOST_STRIKES, ON_LOSS};
use crate::file::error::Problem;
use crate::file::one_or_many::WordOr;
use crate::file::placed::{Placed, Scalar};
use crate::file::requests::levels::Sources;
use crate::file::shape;
use crate::model::key::DSCPS;
use crate::model::{Ban, Delay, Mark, Over};

/// The shortest ban, and the shortest memory of one.
const SHORTEST: Duration = Duration::from_secs(1);

/// Actions that need more than their name, and how they are written.
const LIKE: [(&str, &str); 6] = [
    ("mark", "{mark: {dscp: 10}}"),
    ("class", "{class: BUDGET}"),
    ("interface", "{interface: eth1}"),
    ("cpu", "{cpu: 1}"),
    ("ban", "{ban: {first: 10min}}"),
    ("delay", "{delay: {longest: 200ms}}"),
];

pub(super) fn over(raw: Option<&Placed<WordOr<shape::Action>>>) -> Result<Over, Failure> {
    let Some(raw) = raw else {
        return Ok(Over::Drop);
    };
    let remedy = "write drop, reject, or one of mark, class, interface, cpu and ban in braces";
    let empty = || at(raw.referenced, Problem::Empty { field: "action", remedy });
    match &raw.value {
        WordOr::Word(None) => Err(empty()),
        WordOr::Word(Some(word)) => match word.as_str() {
            "drop" => Ok(Over::Drop),
            "reject" => Ok(Over::Reject),
            other => {
                let known = LIKE.iter().find(|(name, _)| *name == other);
                let problem = if let Some((name, like)) = known {
                    Problem::NeedsMore { name, like }
                } else {
                    let names = LIKE.iter().map(|(name, _)| *name);
                    let expected = ["drop", "reject"].into_iter().chain(names).collect();
                    Problem::UnknownWord { field: "action", word: word.clone(), expected }
                };
                Err(at(raw.referenced, problem))
            }
        },
        WordOr::Map(map) => {
            let shape::Action { mark: marking, class, interface, cpu, .. } = map;
            let mut found = Vec::new();
            if let Some(raw) = marking {
                found.push((Over::Mark(mark(raw)?), raw.referenced));
            }
            if let Some(raw) = class {
                let name = text(raw, "class", "name a budget")?.to_owned();
                found.push((Over::Class(name), raw.referenced));
            }
            if let Some(raw) = interface {
                let name = text(raw, "interface", "name an interface")?.to_owned();
                found.push((Over::Interface(name), raw.referenced));
            }
            if let Some(raw) = cpu {
                let cpu = ranged(raw, "cpu", 0..=u64::from(u32::MAX))?;
                found.push((Over::Cpu(cpu), raw.referenced));
            }
            if let Some(raw) = &map.ban {
                found.push((Over::Ban(Box::new(ban(raw, Ban::default())?)), raw.referenced));
            }
            if let Some(raw) = &map.delay {
                found.push((Over::Delay(delay(raw)?), raw.referenced));
            }
            match found.as_slice() {
                [] => Err(empty()),
                [(over, _)] => Ok(over.clone()),
                [(first, _), (second, location), ..] => {
                    Err(at(*location, Problem::Beside(second.name(), first.name())))
                }
            }
        }
    }
}

pub(super) fn mark(raw: &Placed<WordOr<shape::Mark>>) -> Result<Mark, Failure> {
    let shape::Mark { dscp, ecn } = fields(raw, "mark", "`mark: {dscp: 10}`")?;
    match (dscp, ecn) {
        (Some(_), Some(ecn)) => Err(at(ecn.referenced, Problem::Beside("ecn", "dscp"))),
        (Some(dscp), None) => Ok(Mark::Dscp(named_number(dscp, "dscp", &DSCPS, 63)?)),
        (None, Some(_)) => Ok(Mark::Ecn),
        (None, None) => {
            let (field, remedy) = ("mark", "write `dscp: NUMBER` or `ecn: true` in it");
            Err(at(raw.referenced, Problem::Empty { field, remedy }))
        }
    }
}

/// The fields of `mark` or `ban`, which are more than a word.
fn fields<'a, T>(
    raw: &'a Placed<WordOr<T>>,
    field: &'static str,
    like: &'static str,
) -> Result<&'a T, Failure> {
    match &raw.value {
        WordOr::Map(fields) => Ok(fields),
        WordOr::Word(word) => {
            let text = word.clone().unwrap_or_default();
            Err(at(raw.referenced, Problem::NotFields { field, text, like }))
        }
    }
}

/// Reads `on_full`.
pub(in crate::file) fn full(raw: &Scalar) -> Result<Full, Failure> {
    one_of(raw, "on_full", &FULL)
}

/// Reads `on_daemon_loss`.
pub(super) fn on_loss(raw: Option<&Scalar>) -> Result<OnLoss, Failure> {
    raw.map_or(Ok(OnLoss::default()), |raw| one_of(raw, "on_daemon_loss", &ON_LOSS))
}

/// Reads `delay`.
fn delay(raw: &Placed<WordOr<shape::Delay>>) -> Result<Delay, Failure> {
    let like = "`delay: {longest: 200ms}`";
    let shape::Delay { longest, ecn } = fields(raw, "delay", like)?;
    let Some(scalar) = longest else {
        let (field, remedy) = ("delay", "write `longest: 200ms` in it");
        return Err(at(raw.referenced, Problem::Empty { field, remedy }));
    };
    let written = text(scalar, "longest", "write one like 200ms")?;
    let longest = humantime::parse_duration(written).unwrap_or_default();
    let whole = longest.subsec_nanos().is_multiple_of(1_000_000);
    if !whole || !Delay::WAITS.contains(&longest) {
        let what = format!("longest: {written}");
        let reason = "a wait is a whole number of milliseconds from 1ms to 2s, like 200ms";
        return Err(at(scalar.referenced, Problem::NotSupported { what, reason }));
    }
    Ok(Delay { longest, ecn: ecn.is_some() })
}

/// Reads `ban`; of what is not said, `ban` is as it was.
fn ban(raw: &Placed<WordOr<shape::Ban>>, mut ban: Ban) -> Result<Ban, Failure> {
    let shape::Ban { first, longest, memory, strikes, evidence } =
        fields(raw, "ban", "`ban: {first: 10min}`")?;
    let times = [
        ("first", first, &mut ban.first),
        ("longest", longest, &mut ban.longest),
        ("memory", memory, &mut ban.memory),
    ];
    for (field, raw, value) in times {
        if let Some(raw) = raw {
            *value = time(raw, field, SHORTEST)?;
        }
    }
    if let Some(raw) = strikes {
        ban.strikes = ranged(raw, "strikes", 1..=MOST_STRIKES)?;
    }
    if let Some(raw) = evidence {
        ban.evidence = one_of(raw, "evidence", &EVIDENCE)?;
    }
    if ban.first > ban.longest {
        let scalar = longest.as_ref().or(first.as_ref());
        let text = humantime::format_duration(ban.longest).to_string();
        let problem =
            Problem::Time { field: "longest", text, wrong: "is shorter than the first ban" };
        return Err(at(scalar.map_or(raw.referenced, |scalar| scalar.referenced), problem));
    }
    Ok(ban)
}

/// Checks `action` for what requests do not have. One of its two fields is there.
pub(in crate::file) fn of_requests(
    raw: &Placed<WordOr<shape::Action>>,
) -> Result<&shape::Action, Failure> {
    let remedy = "write `action: {ban: {first: 10min}}` or `action: {queue: NAME}`, or remove the \
                  field";
    let empty = || at(raw.referenced, Problem::Empty { field: "action", remedy });
    let action = match &raw.value {
        WordOr::Map(map) => map,
        WordOr::Word(None) => return Err(empty()),
        WordOr::Word(Some(word)) => {
            let like = [("ban", "{ban: {first: 10min}}"), ("queue", "{queue: NAME}")];
            let problem =
                if let Some((name, like)) = like.into_iter().find(|(name, _)| name == word) {
                    Problem::NeedsMore { name, like }
                } else {
                    Problem::NotSupported { what: word.clone(), reason: shape::ANSWERED }
                };
            return Err(at(raw.referenced, problem));
        }
    };
    match (&action.ban, &action.queue) {
        (None, None) => Err(empty()),
        (Some(_), Some(queue)) => Err(at(queue.referenced, Problem::Beside("queue", "ban"))),
        (Some(_), None) | (None, Some(_)) => Ok(action),
    }
}

/// Reads `ban`. One refused request is enough unless the file says otherwise: the limit itself says
/// how many are too many.
pub(in crate::file) fn ban_of_source(
    raw: &Placed<WordOr<shape::Ban>>,
    sources: Sources,
) -> Result<Ban, Failure> {
    let unsaid = Ban { strikes: 1, evidence: Evidence::None, ..Ban::default() };
    let ban = ban(raw, unsaid)?;
    let refused =
        |reason| Err(at(raw.referenced, Problem::NotSupported { what: "ban".to_owned(), reason }));
    match sources {
        Sources::Apart => Ok(ban),
        Sources::Unknown => {
            let (field, needs) = ("ban", "`remote_address` among the keys of its rule");
            let remedy = "nest the rule, as in `descriptors: [{key: remote_address, rate_limit: \
                          {rate: 5/min}, action: {ban: {first: 10min}}}]`";
            Err(at(raw.referenced, Problem::Without { field, needs, remedy }))
        }
        Sources::Together => refused(
            "the sources share one limit, and one of them would be banned for the others: remove \
             `share_threshold`, or `action`",
        ),
        Sources::NoAddress => refused(
            "the value of `remote_address` is no address: write an address or a prefix, remove \
             the value, or remove `action`",
        ),
    }
}
