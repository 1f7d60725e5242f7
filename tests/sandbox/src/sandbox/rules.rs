//! The rule file, read once more: the sandbox must not ask limiter what limiter should do.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ipnet::IpNet;
use serde::Deserialize;

use crate::oracle::Limit;

#[derive(Debug, Deserialize)]
struct File {
    descriptors: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
struct Descriptor {
    key: String,
    value: Option<String>,
    rate_limit: RateLimit,
}

#[derive(Debug, Deserialize)]
struct RateLimit {
    #[serde(default)]
    unlimited: bool,
    unit: Option<Unit>,
    unit_multiplier: Option<u64>,
    requests_per_unit: Option<u64>,
    burst: Option<u64>,
    #[serde(default)]
    count: Count,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Unit {
    Second,
    Minute,
    Hour,
    Day,
    Week,
}

impl Unit {
    fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3600,
            Self::Day => 86_400,
            Self::Week => 604_800,
        }
    }

    fn symbol(self) -> &'static str {
        match self {
            Self::Second => "s",
            Self::Minute => "min",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
        }
    }
}

/// Unit that a limit counts.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Count {
    /// Frames.
    #[default]
    Packets,
    /// Bytes of the frame, from the Ethernet header, without the checksum.
    Bytes,
}

/// One rule with a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Sources of the rule; `None` for everybody.
    pub prefix: Option<IpNet>,
    /// The limit.
    pub limit: Limit,
    /// Unit that the limit counts.
    pub count: Count,
    /// The limit for a reader: `1000/s, burst 50`.
    pub text: String,
}

/// All rules of a file; an unlimited one has no [`Rule`].
#[derive(Clone, Debug)]
pub struct Rules(Vec<(Option<IpNet>, Option<Rule>)>);

impl Rules {
    /// Reads a rule file.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or has something that the sandbox does not know.
    pub fn read(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("in the rule file {}", path.display()))
    }

    /// Reads the text of a rule file.
    ///
    /// # Errors
    ///
    /// When it has something that the sandbox does not know.
    pub fn parse(text: &str) -> Result<Self> {
        let file: File = serde_saphyr::from_str(text)?;
        let rules = file.descriptors.into_iter().map(|descriptor| {
            let key = &descriptor.key;
            ensure!(key == "remote_address", "the sandbox cannot send for the key `{key}`");
            let prefix = descriptor.value.as_deref().map(prefix).transpose()?;
            Ok((prefix, rule(prefix, &descriptor.rate_limit)?))
        });
        Ok(Self(rules.collect::<Result<_>>()?))
    }

    /// The limit of a source: the longest prefix wins. `None` when it is unlimited.
    pub fn of(&self, source: IpAddr) -> Option<&Rule> {
        self.0
            .iter()
            .filter(|(prefix, _)| prefix.is_none_or(|prefix| prefix.contains(&source)))
            .max_by_key(|(prefix, _)| prefix.map(|prefix| prefix.prefix_len()))
            .and_then(|(_, rule)| rule.as_ref())
    }
}

fn prefix(value: &str) -> Result<IpNet> {
    match value.parse::<IpAddr>() {
        Ok(address) => Ok(address.into()),
        Err(_) => value.parse().with_context(|| format!("`{value}` is no address or prefix")),
    }
}

fn rule(prefix: Option<IpNet>, rate: &RateLimit) -> Result<Option<Rule>> {
    if rate.unlimited {
        return Ok(None);
    }
    let unit = rate.unit.context("`unit` is missing")?;
    let units = rate.requests_per_unit.context("`requests_per_unit` is missing")?;
    // A burst in bytes has room for one full frame at least.
    let least = if rate.count == Count::Bytes { 1522 } else { 1 };
    let burst = u32::try_from(rate.burst.unwrap_or_else(|| units.max(least)))?;
    let multiplier = rate.unit_multiplier.unwrap_or(1);
    let per = match multiplier {
        1 => unit.symbol().to_owned(),
        _ => format!("{multiplier}{}", unit.symbol()),
    };
    let text = match rate.count {
        Count::Packets => format!("{units}/{per}, burst {burst}"),
        Count::Bytes => format!("{units} bytes/{per}, burst {burst}"),
    };
    let limit = Limit { units, per: Duration::from_secs(unit.seconds() * multiplier), burst };
    Ok(Some(Rule { prefix, limit, count: rate.count, text }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
domain: test
descriptors:
  - key: remote_address
    rate_limit: {unit: minute, requests_per_unit: 7}
  - key: remote_address
    value: 192.0.2.0/24
    rate_limit: {name: a, unit: second, requests_per_unit: 5, burst: 9, count: bytes}
  - key: remote_address
    value: 192.0.2.1
    rate_limit: {unlimited: true}
";

    #[test]
    fn the_longest_prefix_wins() {
        let rules = Rules::parse(TEXT).expect("valid");
        let of = |address: &str| rules.of(address.parse().expect("valid")).cloned();
        assert_eq!(of("192.0.2.1"), None);
        assert_eq!(of("192.0.2.2").expect("limited").limit, Limit::per_second(5, 9));
        assert_eq!(of("192.0.2.2").expect("limited").count, Count::Bytes);
        let rest = of("2001:db8::1").expect("limited");
        assert_eq!((rest.limit.per, rest.limit.burst), (Duration::from_mins(1), 7));
        let five = TEXT.replace("unit: minute", "unit: minute, unit_multiplier: 5");
        let rules = Rules::parse(&five).expect("valid");
        let rest = rules.of("2001:db8::1".parse().expect("valid")).expect("limited");
        assert_eq!(
            (rest.limit.per, rest.text.as_str()),
            (Duration::from_mins(5), "7/5min, burst 7")
        );
    }

    #[test]
    fn the_example_is_read() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sandbox.yaml");
        Rules::read(&path).expect("valid");
    }

    #[test]
    fn what_it_cannot_send_for_is_refused() {
        assert!(Rules::parse(&TEXT.replace("remote_address", "protocol")).is_err());
        assert!(Rules::parse(&TEXT.replace("192.0.2.0/24", "nobody")).is_err());
        assert!(Rules::parse(&TEXT.replace("unit: minute, ", "")).is_err());
    }
}
