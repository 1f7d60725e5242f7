//! Lines of the log on disk: JSON objects with their checksums.

use std::time::SystemTime;

use limiter_api::events::Sample;
use serde::{Deserialize, Serialize};

use crate::disk::sealed;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(in crate::events) enum Record {
    Drops(Drops),
    /// Drops of sources that could not be named for lack of room.
    Others(Others),
    /// Proof that the log was kept.
    Mark(Mark),
    /// Lines that could not be written.
    Gap(Gap),
}

/// Drops of one source by one rule for one reason: an episode, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Drops {
    pub(in crate::events) source: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::events) rule: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::events) rule_name: Option<String>,
    pub(in crate::events) reason: String,
    #[serde(with = "moment")]
    pub(in crate::events) began: SystemTime,
    /// First drop of this part.
    #[serde(with = "moment")]
    pub(in crate::events) from: SystemTime,
    /// Last drop of this part.
    #[serde(with = "moment")]
    pub(in crate::events) to: SystemTime,
    /// Drops of this part that were reported.
    pub(in crate::events) sampled: u64,
    pub(in crate::events) last: Sample,
}

/// Drops by one rule for one reason, of unnamed sources; without a reason, of several reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::events) struct Others {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::events) rule: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::events) rule_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::events) reason: Option<String>,
    #[serde(with = "moment")]
    pub(in crate::events) from: SystemTime,
    #[serde(with = "moment")]
    pub(in crate::events) to: SystemTime,
    pub(in crate::events) sampled: u64,
}

/// Proof that the log was kept for a time, with the unreported drops of that time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::events) struct Mark {
    #[serde(with = "moment")]
    pub(in crate::events) from: SystemTime,
    #[serde(with = "moment")]
    pub(in crate::events) to: SystemTime,
    /// Drops that the program counted without reporting them.
    pub(in crate::events) unnamed: u64,
    /// All drops that the program has counted since its maps were made.
    pub(in crate::events) counted: u64,
    /// True if no daemon kept the log for this time, before a start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::events) absent: bool,
}

/// Lines that could not be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::events) struct Gap {
    #[serde(with = "moment")]
    pub(in crate::events) from: SystemTime,
    #[serde(with = "moment")]
    pub(in crate::events) to: SystemTime,
    pub(in crate::events) lines: u64,
}

impl Record {
    /// First and last moment of the record.
    pub(super) const fn times(&self) -> (SystemTime, SystemTime) {
        match self {
            Self::Drops(of) => (of.from, of.to),
            Self::Others(of) => (of.from, of.to),
            Self::Mark(of) => (of.from, of.to),
            Self::Gap(of) => (of.from, of.to),
        }
    }

    /// Formats the record as a line with its line break; `None` if it cannot be JSON.
    pub(super) fn line(&self) -> Option<String> {
        let json = serde_json::to_string(self)
            .inspect_err(|error| tracing::error!(%error, "an event that cannot be kept as JSON"))
            .ok()?;
        Some(sealed::sealed_object(&json) + "\n")
    }

    /// Reads a record from a line without its line break; `None` if the line is damaged.
    pub(super) fn read(line: &[u8]) -> Option<Self> {
        if !sealed::is_sealed_object(line) {
            return None;
        }
        serde_json::from_slice(line).ok()
    }
}

/// Moments in RFC 3339, to the millisecond.
mod moment {
    use std::time::SystemTime;

    use serde::{Deserialize as _, Deserializer, Serializer, de};

    use crate::machine::clocks::representable;

    pub(super) fn serialize<S: Serializer>(
        time: &SystemTime,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_rfc3339_millis(representable(*time)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<SystemTime, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_rfc3339(&text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written_or_not_at_all() {
        let at = |seconds: u64| UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds);
        let drops = Record::Drops(Drops {
            source: "203.0.113.9".to_owned(),
            rule: Some("destination_port=53 remote_address".to_owned()),
            rule_name: None,
            reason: "over-limit".to_owned(),
            began: at(0),
            from: at(60),
            to: at(61) + Duration::from_millis(250),
            sampled: 7,
            last: Sample {
                direction: None,
                interface: Some("eth0".to_owned()),
                bytes: 60,
                protocol: Some(17),
                source_port: Some(40_000),
                destination_port: Some(53),
            },
        });
        let mark =
            Record::Mark(Mark { from: at(0), to: at(60), unnamed: 3, counted: 10, absent: true });
        let gap = Record::Gap(Gap { from: at(0), to: at(1), lines: 2 });
        let others = Record::Others(Others {
            rule: None,
            rule_name: None,
            reason: None,
            from: at(1),
            to: at(2),
            sampled: 9,
        });
        for record in [drops, mark, gap, others] {
            let line = record.line().unwrap();
            let text = line.strip_suffix('\n').unwrap();
            assert_eq!(Record::read(text.as_bytes()), Some(record), "{text}");
            assert_eq!(Record::read(&text.as_bytes()[..text.len() - 1]), None, "{text}");
            assert_eq!(Record::read(text.replace("2027", "2028").as_bytes()), None, "{text}");
        }
    }
}
