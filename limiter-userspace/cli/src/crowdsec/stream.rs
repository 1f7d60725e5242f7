//! CrowdSec's local API, as a bouncer reads it.

use std::time::Duration;

use limiter_daemon::web::{WebClient, WebUrl};
use limiter_rules::feed::Decision;
use serde::{Deserialize, Deserializer};

/// Most bytes of an answer: some 300,000 decisions, which is as many as the daemon takes at once.
pub(super) const MOST_ANSWER: usize = 64 << 20;

/// Name and version, by which `cscli bouncers list` shows this one.
const AGENT: &str = concat!("limiter/", env!("CARGO_PKG_VERSION"));

/// The local API, at which this bouncer has a key.
pub(super) struct Lapi {
    pub(super) base: String,
    pub(super) key: String,
    pub(super) web: WebClient,
    /// Longest time that a whole answer may take.
    pub(super) patience: Duration,
}

/// An answer of the stream of decisions.
#[derive(Debug, Deserialize)]
pub(super) struct News {
    /// Decisions in force: all of them, or those since the last answer.
    #[serde(deserialize_with = "list")]
    pub(super) new: Vec<Heard>,
    /// Decisions that have ended, or were deleted.
    #[serde(deserialize_with = "list")]
    pub(super) deleted: Vec<Heard>,
}

/// A list, or `null` for an empty one. Without either, the answer is not CrowdSec's.
fn list<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Heard>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// A decision as CrowdSec writes it.
#[derive(Debug, Deserialize)]
pub(super) struct Heard {
    #[serde(rename = "type")]
    kind: String,
    scope: String,
    value: String,
    #[serde(default)]
    duration: String,
    #[serde(default)]
    scenario: String,
    simulated: Option<bool>,
}

impl Heard {
    /// The decision, and its scenario.
    pub(super) fn into_decision(self) -> (Decision, String) {
        let Self { kind, scope, value, duration, scenario, simulated } = self;
        let simulated = simulated == Some(true);
        (Decision { kind, scope: Some(scope), value, duration, simulated }, scenario)
    }
}

impl Lapi {
    pub(super) fn new(url: &WebUrl, key: String, patience: Duration) -> Self {
        let uri = url.uri();
        let scheme = uri.scheme_str().unwrap_or_default();
        let host = uri.authority().map_or("", |authority| authority.as_str());
        let base = format!("{scheme}://{host}{}", uri.path().trim_end_matches('/'));
        Self { base, key, web: WebClient::new(url, "--url"), patience }
    }

    /// Asks for all decisions, or for those since the last answer. The API begins anew with each
    /// answer, even one that never arrives: after a failure only all decisions are known to be all.
    pub(super) fn read(&self, all: bool) -> Result<News, String> {
        let url = format!("{}/v1/decisions/stream?startup={all}", self.base);
        let headers = [("x-api-key", self.key.as_str()), ("user-agent", AGENT)];
        let (status, body) = self.web.get(&url, &headers, MOST_ANSWER, self.patience)?;
        match status {
            200 => serde_json::from_slice(&body)
                .map_err(|error| format!("it does not answer as CrowdSec ({error}): check --url")),
            401 | 403 => Err(format!(
                "it refuses the key (status {status}): make one with `cscli bouncers add limiter`"
            )),
            _ => Err(format!("it answers with status {status}: see its log")),
        }
    }
}
