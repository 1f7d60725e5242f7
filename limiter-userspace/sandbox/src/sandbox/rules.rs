//! The limits of a rule file, as limiter reads it; the oracle says what they let pass.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use ipnet::IpNet;
pub use limiter_common::wire::Count;
use limiter_rules::model::{Limits, Meter, RateLimit};
use limiter_rules::{RuleFile, Selector, Terms};

use crate::oracle::Limit;

/// The largest frame on the cables, with two VLAN tags.
const MAX_FRAME: u64 = 1522;

/// One rule with a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Sources of the rule; `None` for all sources.
    pub prefix: Option<IpNet>,
    /// The limit.
    pub limit: Limit,
    /// Unit that the limit counts: packets, or bytes of the frame.
    pub count: Count,
    /// The limit as text for a reader: `1000/s, burst 50`.
    pub text: String,
}

/// All rules of a file; an unlimited one has no [`Rule`].
#[derive(Clone, Debug)]
pub struct Rules(Vec<(Selector, Option<Rule>)>);

impl Rules {
    /// Reads a rule file.
    ///
    /// # Errors
    ///
    /// When limiter would refuse it, or it has something that the sandbox cannot measure.
    pub fn read(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::of_file(&path.display().to_string(), &text)
    }

    /// Reads the text of a rule file.
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    pub fn parse(text: &str) -> Result<Self> {
        Self::of_file("the rule file", text)
    }

    fn of_file(name: &str, text: &str) -> Result<Self> {
        let file = RuleFile::parse(name, text.as_bytes(), MAX_FRAME)?;
        let rules = file.rules.rules.iter().map(|rule| {
            let path = &rule.path;
            let end = path.other_end();
            let end = end.with_context(|| format!("the sandbox cannot send for the key {path}"))?;
            let limited = match &rule.terms {
                Terms::Unlimited => None,
                Terms::Limits(limits) => Some(limited(end, limits)),
                Terms::Budget(_) => bail!("the sandbox cannot measure the budget of {path}"),
            };
            let limited = limited.transpose();
            Ok((end, limited.with_context(|| format!("{name}: rule for {path}"))?))
        });
        Ok(Self(rules.collect::<Result<_>>()?))
    }

    /// The limit of a source, by the longest matching prefix; `None` if the source is unlimited.
    pub fn of(&self, source: IpAddr) -> Option<&Rule> {
        let source = Selector::address(source);
        let around = self.0.iter().filter(|(selector, _)| selector.contains(&source));
        let longest =
            around.max_by_key(|(selector, _)| prefix(*selector).map(|at| at.prefix_len()));
        longest.and_then(|(_, rule)| rule.as_ref())
    }
}

fn prefix(selector: Selector) -> Option<IpNet> {
    match selector {
        Selector::Every => None,
        Selector::Prefix(net) => Some(net),
    }
}

/// The only limit of a rule.
fn limited(end: Selector, limits: &Limits) -> Result<Rule> {
    let limit = limits.limits.first().filter(|_| limits.limits.len() == 1);
    let Some(Meter::TokenBucket(rate)) =
        limit.filter(|limit| limit.upper.is_none()).map(|limit| limit.meter)
    else {
        bail!("the sandbox measures one token bucket");
    };
    let RateLimit { count, requests_per_unit: units, period: per, burst, .. } = rate;
    let unit = match count {
        Count::Packets => "",
        Count::Bytes => " bytes",
        Count::Syns | Count::Flows => bail!("the sandbox sends no {}", count.name()),
    };
    Ok(Rule {
        prefix: prefix(end),
        limit: Limit {
            units,
            per: Duration::from_secs(per.seconds()),
            burst: u32::try_from(burst)?,
        },
        count,
        text: format!("{units}{unit}/{per}, burst {burst}"),
    })
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
    rate_limit: {name: a, unit: second, requests_per_unit: 5, burst: 2000, count: bytes}
  - key: remote_address
    value: 192.0.2.1
    rate_limit: {unlimited: true}
";

    fn limit_of(rules: &str, address: &str) -> Option<Rule> {
        Rules::parse(rules).expect("valid").of(address.parse().expect("valid")).cloned()
    }

    #[test]
    fn the_longest_prefix_wins() {
        assert_eq!(limit_of(TEXT, "192.0.2.1"), None);
        let inside = limit_of(TEXT, "192.0.2.2").expect("limited");
        assert_eq!((inside.limit, inside.count), (Limit::per_second(5, 2000), Count::Bytes));
        let rest = limit_of(TEXT, "2001:db8::1").expect("limited");
        assert_eq!((rest.limit.per, rest.limit.burst), (Duration::from_mins(1), 7));
        let five = TEXT.replace("unit: minute", "unit: minute, unit_multiplier: 5");
        let rest = limit_of(&five, "2001:db8::1").expect("limited");
        assert_eq!(
            (rest.limit.per, rest.text.as_str()),
            (Duration::from_mins(5), "7/5min, burst 7")
        );
    }

    /// All forms in which rule files write a limit must be read.
    #[test]
    fn a_rate_in_short_is_the_same_limit() {
        let of = |rate: &str| {
            let rules = format!("descriptors: [{{key: remote_address, rate_limit: {{{rate}}}}}]\n");
            limit_of(&rules, "192.0.2.1")
        };
        let long = of("unit: second, requests_per_unit: 30, burst: 60");
        assert_eq!(of("rate: 30/s, burst: 60"), long);
        assert_eq!(long.expect("limited").limit, Limit::per_second(30, 60));
        assert_eq!(of("rate: 8mbit/s, burst: 2kB").expect("limited").count, Count::Bytes);
    }

    #[test]
    fn the_example_is_read() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sandbox.yaml");
        Rules::read(&path).expect("valid");
    }

    #[test]
    fn what_it_cannot_send_for_is_refused() {
        let protocol =
            TEXT.replace("  - key: remote_address\n    rate", "  - key: protocol\n    rate");
        for text in [
            protocol,
            TEXT.replace("192.0.2.0/24", "nobody"),
            TEXT.replace("unit: minute, ", ""),
            TEXT.replace("unit: minute", "algorithm: fixed_window, unit: minute"),
            TEXT.replace("unit: minute", "count: syns, unit: minute"),
        ] {
            assert!(Rules::parse(&text).is_err(), "{text}");
        }
    }
}
