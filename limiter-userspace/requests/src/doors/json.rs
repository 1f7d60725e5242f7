//! The JSON of envoyproxy/ratelimit: questions and answers.

use std::fmt;
use std::time::Duration;

use limiter_rules::file::requests::RequestLimit;
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::decide::question::{Answer, Asked, Descriptor, Status};
use crate::decide::unit::{self, Unit};
use crate::doors::envoy::Shown;
use crate::queue::rule::{Kept, PayloadIn, Queued};

/// Longest id of a payload, in bytes.
const LONGEST_ID: usize = 128;

/// A question. Fields may be written in either of the two ways that JSON of protocol buffers has.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AskedIn {
    #[serde(default)]
    domain: String,
    #[serde(default)]
    descriptors: Vec<DescriptorIn>,
    #[serde(default, alias = "hits_addend")]
    hits_addend: Number,
    /// For reservations: the longest time that the request may wait.
    #[serde(default, alias = "max_wait")]
    max_wait: Option<Time>,
    /// For reservations: the answer comes when the request may go.
    #[serde(default)]
    wait: bool,
    /// What a queue keeps for later, if the request is over the limit of a rule with one.
    #[serde(default)]
    payload: Option<String>,
    /// The caller's name for the payload.
    #[serde(default)]
    id: Option<String>,
}

/// A length of time, as in `1.5s` or `100ms`.
#[derive(Clone, Copy, Debug)]
struct Time(Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let seconds = text.strip_suffix('s').and_then(|text| text.parse::<f64>().ok());
        let seconds = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let time = seconds.or_else(|| humantime::parse_duration(&text).ok());
        time.map(Time).ok_or_else(|| {
            de::Error::custom(format!("{text:?} is no length of time, as in 1.5s or 100ms"))
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DescriptorIn {
    #[serde(default)]
    entries: Vec<EntryIn>,
    #[serde(default)]
    limit: Option<LimitIn>,
    #[serde(default, alias = "hits_addend")]
    hits_addend: Option<Number>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryIn {
    #[serde(default)]
    key: String,
    #[serde(default)]
    value: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LimitIn {
    #[serde(alias = "requests_per_unit")]
    requests_per_unit: Number,
    unit: Unit,
}

/// A number, or a text with one: protocol buffers write 64 bits as text.
#[derive(Clone, Copy, Debug, Default)]
struct Number(u64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl Visitor<'_> for Either {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number, or a text with one")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Number, E> {
                Ok(Number(number))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Number, E> {
                text.parse().map(Number).map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl LimitIn {
    fn limit(&self) -> RequestLimit {
        let Self { requests_per_unit: Number(requests_per_unit), unit } = *self;
        unit::limit(requests_per_unit, unit)
    }
}

impl AskedIn {
    /// The longest time that the request may wait, if it may.
    pub(crate) fn max_wait(&self) -> Option<Duration> {
        self.max_wait.map(|Time(time)| time)
    }

    /// True if the answer is to come when the request may go.
    pub(crate) const fn holds(&self) -> bool {
        self.wait
    }

    /// True if it has a payload, which is kept unchanged or not at all.
    pub(crate) const fn is_kept(&self) -> bool {
        self.payload.is_some() || self.id.is_some()
    }

    /// What a queue is to keep.
    pub(crate) fn payload(&self) -> Result<Option<PayloadIn<'_>>, &'static str> {
        let id = self.id.as_deref();
        if id.is_some_and(|id| !(1..=LONGEST_ID).contains(&id.len())) {
            return Err("id has 1 to 128 bytes: shorten it, or leave it out");
        }
        match self.payload.as_deref() {
            Some(text) => Ok(Some(PayloadIn { text, id })),
            None if id.is_some() => Err("id is the name of a payload: add one, or leave it out"),
            None => Ok(None),
        }
    }

    pub(crate) fn asked(&self) -> Asked<'_> {
        let descriptors = self.descriptors.iter().map(|of| Descriptor {
            entries: of.entries.iter().map(|entry| (&*entry.key, &*entry.value)).collect(),
            hits: of.hits_addend.map(|Number(hits)| hits),
            limit: of.limit.as_ref().map(LimitIn::limit),
        });
        Asked { domain: &self.domain, descriptors: descriptors.collect(), hits: self.hits_addend.0 }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AnswerOut<'a> {
    overall_code: Code,
    statuses: Vec<StatusOut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queued: Option<QueuedOut<'a>>,
    /// Why the payload does not wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_queued: Option<String>,
}

#[derive(Debug, Serialize)]
struct QueuedOut<'a> {
    queue: &'a str,
    id: &'a str,
    /// Payloads that leave earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    ahead: Option<u64>,
    /// The time until it leaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    wait: Option<Seconds>,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum Code {
    Ok,
    OverLimit,
}

impl From<bool> for Code {
    fn from(over: bool) -> Self {
        if over { Self::OverLimit } else { Self::Ok }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusOut<'a> {
    code: Code,
    /// True if it passes over a soft limit.
    #[serde(skip_serializing_if = "is_false")]
    over_soft_limit: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_limit: Option<LimitOut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_remaining: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_until_reset: Option<Seconds>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LimitOut<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    requests_per_unit: u32,
    unit: &'static str,
}

/// A length of time, to the millisecond and rounded up, as protocol buffers write it in JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seconds {
    pub(crate) nanos: u64,
}

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.nanos.div_ceil(1_000_000);
        match (millis / 1000, millis % 1000) {
            (seconds, 0) => write!(f, "{seconds}s"),
            (seconds, millis) => write!(f, "{seconds}.{millis:03}s"),
        }
    }
}

impl<'a> From<&'a Answer> for AnswerOut<'a> {
    fn from(answer: &'a Answer) -> Self {
        let statuses = answer.statuses.iter().map(StatusOut::from).collect();
        let kept = answer.kept.as_ref();
        let queued = kept.and_then(|kept| {
            let Queued { place } = kept.became.ok()?;
            Some(QueuedOut {
                queue: &kept.queue.settings.name,
                id: &kept.id,
                ahead: place.map(|(ahead, _)| ahead),
                wait: place.map(|(_, nanos)| Seconds { nanos }),
            })
        });
        let not_queued = kept.and_then(Kept::refused);
        Self { overall_code: answer.over.into(), statuses, queued, not_queued }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

impl<'a> From<&'a Status> for StatusOut<'a> {
    fn from(status: &'a Status) -> Self {
        let Shown { over, limit, remaining, reset } = Shown::from(status);
        Self {
            code: over.into(),
            over_soft_limit: status.over_soft,
            current_limit: limit.map(|limit| LimitOut {
                name: limit.name,
                requests_per_unit: limit.requests_per_unit,
                unit: limit.unit.map_or("UNKNOWN", Unit::name),
            }),
            limit_remaining: remaining,
            duration_until_reset: reset.map(|nanos| Seconds { nanos }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up_to_milliseconds() {
        let shown = |nanos| Seconds { nanos }.to_string();
        assert_eq!(shown(0), "0s");
        assert_eq!(shown(1), "0.001s");
        assert_eq!(shown(37_000_000), "0.037s");
        assert_eq!(shown(59_999_999_999), "60s");
    }

    #[test]
    fn both_ways_of_writing_fields_are_read() {
        for text in [
            r#"{"domain":"d","hitsAddend":"3","descriptors":[{"entries":[{"key":"k"}],"limit":{"requestsPerUnit":7,"unit":"DAY"},"hitsAddend":2}]}"#,
            r#"{"domain":"d","hits_addend":3,"descriptors":[{"entries":[{"key":"k","value":""}],"limit":{"requests_per_unit":"7","unit":"DAY"},"hits_addend":"2"}]}"#,
        ] {
            let asked: AskedIn = serde_json::from_str(text).unwrap();
            let asked = asked.asked();
            assert_eq!((asked.domain, asked.hits), ("d", 3));
            let [descriptor] = &asked.descriptors[..] else { panic!("{asked:?}") };
            assert_eq!((&descriptor.entries[..], descriptor.hits), (&[("k", "")][..], Some(2)));
            assert_eq!(descriptor.limit.unwrap().meter.quota().requests_per_unit, 7);
        }
        for text in [
            r#"{"domian":"d"}"#,
            r#"{"domain":"d","descriptors":[{"entries":[{"key":1}]}]}"#,
            r#"{"hitsAddend":-1}"#,
            r#"{"hitsAddend":"many"}"#,
            r#"{"descriptors":[{"limit":{"unit":"DAY"}}]}"#,
        ] {
            assert!(serde_json::from_str::<AskedIn>(text).is_err(), "{text}");
        }
    }
}
