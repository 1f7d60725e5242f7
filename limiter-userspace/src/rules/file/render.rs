//! Rules as a rule file again: JSON, which is YAML.

use limiter_common::wire::Count;
use serde::Serialize;

use crate::rules::model::{RateLimit, Rule, Selector};
use crate::rules::rate_text::default_burst;

#[derive(Serialize)]
struct File<'a> {
    domain: &'a str,
    descriptors: Vec<Descriptor<'a>>,
}

#[derive(Serialize)]
struct Descriptor<'a> {
    key: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    rate_limit: Limit<'a>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    shadow_mode: bool,
}

#[derive(Default, Serialize)]
#[serde(default)]
struct Limit<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests_per_unit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    burst: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unlimited: Option<bool>,
}

/// Writes rules so that [`super::RuleFile::parse`] reads the same ones. A burst that is the default
/// for `max_frame` is left out, so that it follows the interfaces.
pub fn render(domain: &str, rules: &[&Rule], max_frame: u64) -> Result<String, serde_json::Error> {
    let descriptors = rules
        .iter()
        .map(|rule| Descriptor {
            key: "remote_address",
            value: match rule.selector {
                Selector::Every => None,
                Selector::Prefix(_) => Some(rule.selector.to_string()),
            },
            rate_limit: limit(rule, max_frame),
            shadow_mode: rule.action.is_shadow(),
        })
        .collect();
    serde_json::to_string_pretty(&File { domain, descriptors }).map(|text| text + "\n")
}

fn limit(rule: &Rule, max_frame: u64) -> Limit<'_> {
    let name = rule.name.as_deref();
    match rule.action.rate_limit().copied() {
        None => Limit { name, unlimited: Some(true), ..Limit::default() },
        Some(RateLimit { count, requests_per_unit, unit, burst }) => Limit {
            name,
            unit: Some(unit.name()),
            requests_per_unit: Some(requests_per_unit),
            burst: (burst != default_burst(count, requests_per_unit, max_frame)).then_some(burst),
            count: match count {
                Count::Packets => None,
                Count::Bytes => Some("bytes"),
                Count::Syns => Some("syns"),
                Count::Flows => Some("flows"),
            },
            unlimited: None,
        },
    }
}
