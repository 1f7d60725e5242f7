//! Rules for requests after every check that needs no other file.

use std::fmt;
use std::time::Duration;

use ipnet::IpNet;
use limiter_common::wire::{Full, LimitSpec};
use limiter_sharing::fnv::Fnv;

use crate::compile::{Failure, compile};
use crate::file::place::Place;
use crate::model::{Ban, LimitList, Meter, Period, RuleLimit, Sharing};

/// Levels that descriptors may be nested in, and entries that a request may have.
pub const MAX_DEPTH: usize = 16;

/// A rule file for requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFile {
    /// The name by which requests ask.
    pub domain: String,
    /// Place of the name.
    pub domain_at: Option<Place>,
    /// Descriptors of the requests that come as checks of a proxy.
    pub check: Vec<Vec<Entry>>,
    /// The outermost keys.
    pub nodes: Vec<Node>,
    /// Queues for what is over the limits of rules that name them.
    pub queues: Vec<Queue>,
    /// Differences from what the author may expect.
    pub notes: Vec<Note>,
}

impl RequestFile {
    /// A digest of what is written: two files with the same one mean the same. Where it is written
    /// does not matter, nor what else is in the file.
    pub fn digest(&self) -> u64 {
        let mut file = Self { domain_at: None, notes: Vec::new(), ..self.clone() };
        file.queues.iter_mut().for_each(|queue| queue.place = None);
        forget_places(&mut file.nodes);
        Fnv::new().with(format!("{file:?}").as_bytes()).finish()
    }

    /// All rules, each with its path.
    pub fn rules(&self) -> Vec<(Vec<&Level>, &RequestRule)> {
        fn walk<'a>(
            nodes: &'a [Node],
            path: &mut Vec<&'a Level>,
            found: &mut Vec<(Vec<&'a Level>, &'a RequestRule)>,
        ) {
            for node in nodes {
                path.push(&node.level);
                if let Some(rule) = &node.rule {
                    found.push((path.clone(), rule));
                }
                walk(&node.nested, path, found);
                path.pop();
            }
        }
        let mut found = Vec::new();
        walk(&self.nodes, &mut Vec::new(), &mut found);
        found
    }
}

fn forget_places(nodes: &mut [Node]) {
    for Node { rule, nested, .. } in nodes {
        if let Some(rule) = rule {
            rule.place = None;
            if let Some((_, place)) = &mut rule.queue {
                *place = None;
            }
        }
        forget_places(nested);
    }
}

/// Limits for wider prefixes of the source of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestAggregate {
    /// Bits of an IPv4 source that count; none if it is not for those.
    pub v4: Option<u8>,
    /// Bits of an IPv6 source that count; none if it is not for those.
    pub v6: Option<u8>,
    /// One to four limits.
    pub limits: Box<[ReadyLimit]>,
}

/// A remark about a file that is good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Place of what it is about.
    pub place: Option<Place>,
    /// The remark, in one line.
    pub text: String,
}

/// A key and a value, the rule on them, and further keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The key and the value.
    pub level: Level,
    /// The rule, if one ends here.
    pub rule: Option<RequestRule>,
    /// Further keys.
    pub nested: Vec<Self>,
}

/// A key and a value of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// The key: any name.
    pub key: Box<str>,
    /// Values that it matches.
    pub value: LevelValue,
    /// True if all values that a pattern matches share one bucket.
    pub shared: bool,
    /// True if metrics have the value of the request.
    pub in_metric: bool,
}

/// As in a file, in one line: `to_number`, `message_type=marketing`, `path=/api/*`. No two are the
/// same, nor are the lines of two lists of them: what would end a word is in quotes.
impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |text: &str, end: &[char]| {
            let plain = !text.is_empty() && !text.contains(['"', ' ']) && !text.contains(end);
            if plain { text.to_owned() } else { format!("{text:?}") }
        };
        f.write_str(&word(&self.key, &['=']))?;
        match &self.value {
            LevelValue::Any => Ok(()),
            LevelValue::Exact(value) => write!(f, "={}", word(value, &[])),
            LevelValue::Pattern(pattern) => write!(f, "={}", word(&pattern.to_string(), &[])),
            LevelValue::Source(net) => write!(f, "={net}"),
        }
    }
}

/// Values that a level matches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LevelValue {
    /// Every value, each with a bucket of its own.
    Any,
    /// This value.
    Exact(Box<str>),
    /// Values by a pattern.
    Pattern(Pattern),
    /// Sources inside a prefix.
    Source(IpNet),
}

/// A text with `*` in it, each of which stands for any characters, or none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pattern(Box<[Box<str>]>);

impl Pattern {
    /// The pattern of a text; none if it has no `*`.
    pub fn of(text: &str) -> Option<Self> {
        let parts: Vec<Box<str>> = text.split('*').map(Box::from).collect();
        (parts.len() > 1).then(|| Self(parts.into()))
    }

    /// Characters that are no `*`, in bytes.
    pub fn literal(&self) -> usize {
        self.0.iter().map(|part| part.len()).sum()
    }

    /// True if it matches a value.
    pub fn matches(&self, value: &str) -> bool {
        let [first, between @ .., last] = &*self.0 else {
            return false;
        };
        let rest = value.strip_prefix(&**first).and_then(|rest| rest.strip_suffix(&**last));
        let Some(mut rest) = rest else {
            return false;
        };
        for part in between {
            let Some((_, after)) = rest.split_once(&**part) else {
                return false;
            };
            rest = after;
        }
        true
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("*"))
    }
}

/// What a rule does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestRule {
    /// The name that the file gives it.
    pub name: Option<Box<str>>,
    /// Names of rules that it replaces where both match one request.
    pub replaces: Box<[Box<str>]>,
    /// Its limits.
    pub terms: RequestTerms,
    /// The name of the budget whose limits they are.
    pub budget: Option<Box<str>>,
    /// Limits for wider prefixes of the source.
    pub aggregates: Box<[RequestAggregate]>,
    /// Requests over the limits pass, and are counted.
    pub shadow: bool,
    /// A request is over the limits only if it is over all rules of this kind.
    pub quota: bool,
    /// Values in metrics.
    pub metric: Metric,
    /// Treatment of requests that get no bucket.
    pub full: Full,
    /// Hits are reports of what was done already: they are always charged.
    pub afterwards: bool,
    /// How nodes share the limits; none if each node has its own.
    pub sharing: Option<Box<Sharing>>,
    /// Ban of the source of requests over the limits. Its strikes are such requests, and it needs
    /// no evidence.
    pub ban: Option<Ban>,
    /// Name of the queue that keeps what is over the limits, and its place. The limits are token or
    /// leaky buckets.
    pub queue: Option<(Box<str>, Option<Place>)>,
    /// Place of the rule.
    pub place: Option<Place>,
}

/// A queue that keeps payloads of requests until they may leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Its name: 1 to 64 letters, digits, `-`, `_` and `.`.
    pub name: Box<str>,
    /// Payloads that wait in it at once, at least 1.
    pub depth: u64,
    /// The longest time for which one waits.
    pub age: Duration,
    /// The longest payload, in bytes.
    pub payload: u64,
    /// Deliveries of a payload to a worker, at least 1.
    pub attempts: u64,
    /// The time for which a worker has a payload before another one gets it.
    pub visibility: Duration,
    /// Place of the queue.
    pub place: Option<Place>,
}

impl Queue {
    /// A queue of this name, with what a file that says nothing else means.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            depth: 100_000,
            age: Duration::from_hours(1),
            payload: 32 << 10,
            attempts: 5,
            visibility: Duration::from_mins(1),
            place: None,
        }
    }
}

/// Values in the metrics of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metric {
    /// Those of levels that say so.
    #[default]
    Levels,
    /// Those of all levels.
    All,
}

/// Limits of a rule, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RequestTerms {
    /// Every request passes.
    #[default]
    Unlimited,
    /// No request passes. The length of time is what the file says, for answers.
    Block(Period),
    /// One to four limits: any of them trips.
    Limits(Box<[ReadyLimit]>),
}

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestLimit {
    /// How much may pass, and how it is counted.
    pub meter: Meter,
    /// The months of a window, whose length differs: the meter has that of the longest.
    pub calendar: Option<Calendar>,
    /// True if requests over it pass and are not charged to it: the next limit is its ceiling.
    pub is_soft: bool,
}

impl RequestLimit {
    /// A limit over which no request passes.
    pub const fn hard(meter: Meter) -> Self {
        Self { meter, calendar: None, is_soft: false }
    }

    /// Hits that may pass at once, when nothing is used.
    pub const fn amount(&self) -> u64 {
        match self.meter {
            Meter::TokenBucket(rate) => rate.burst,
            meter => meter.quota().requests_per_unit,
        }
    }
}

/// A limit, ready to be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyLimit {
    /// What the file says.
    pub written: RequestLimit,
    /// The same, compiled.
    pub spec: LimitSpec,
}

impl ReadyLimit {
    /// Compiles limits that no file says.
    ///
    /// # Errors
    ///
    /// Why one cannot be held, with its number.
    pub fn compile(written: &[RequestLimit]) -> Result<Box<[Self]>, Failure> {
        let hard = |limit: &RequestLimit| RuleLimit::hard(limit.meter);
        Self::compiled(written, &written.iter().map(hard).collect::<Vec<_>>().into())
    }

    /// Limits with what `list` says of them, where a ceiling stands with the limit below it.
    pub(super) fn compiled(
        written: &[RequestLimit],
        list: &LimitList,
    ) -> Result<Box<[Self]>, Failure> {
        // Requests are counted: no frame has to fit.
        let specs = compile(list, false, 1)?.record.limits;
        let ready = written.iter().zip(specs);
        Ok(ready.map(|(written, spec)| Self { written: *written, spec }).collect())
    }
}

/// A window of the calendar, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Calendar {
    /// Its months, which divide a year: 12 for a year.
    pub months: u8,
}

/// An entry of a descriptor that a check is turned into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Box<str>,
    /// Origin of the value.
    pub value: EntryValue,
}

/// Origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryValue {
    /// Always the same.
    Fixed(Box<str>),
    /// A header, in small letters. Without it, there is no such descriptor.
    Header(Box<str>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_a_search_of_all_ways_does() {
        /// Every way of dividing the value: slow, and sure.
        fn all_ways(pattern: &str, value: &str) -> bool {
            match pattern.split_once('*') {
                None => pattern == value,
                Some((before, after)) => value.strip_prefix(before).is_some_and(|rest| {
                    (0..=rest.len()).any(|at| rest.get(at..).is_some_and(|r| all_ways(after, r)))
                }),
            }
        }
        let letters = ["", "a", "b", "ab", "ba", "aba", "bab", "aab", "abab", "abba", "aabab"];
        let mut seen = [0, 0];
        for x in letters {
            for y in letters {
                for z in letters {
                    for text in [format!("{x}*{y}"), format!("{x}*{y}*{z}")] {
                        let pattern = Pattern::of(&text).unwrap();
                        assert_eq!(pattern.to_string(), text);
                        for value in letters {
                            let expected = all_ways(&text, value);
                            assert_eq!(pattern.matches(value), expected, "{text} {value}");
                            seen[usize::from(expected)] += 1;
                        }
                    }
                }
            }
        }
        assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
        assert_eq!(Pattern::of("abc"), None);
    }
}
