//! Whole rule sets: the rule files again, others in their place, on trial or not.

use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::time::SystemTime;

use axum::extract::{Extension, State};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::status::Reload;
use super::{Shared, words};
use crate::control::{
    Answer, Asked, JSON, JsonBody, MAX_RULES_BODY, Peer, Refusal, Routes, change, sliced,
};
use crate::render::{Render, line, warnings};
use crate::service::Service;
use crate::views::RulesText;

/// The answer to a change of the rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Changed {
    /// The rule set now in force.
    pub generation: u64,
    /// Number of rules in it.
    pub rules: usize,
    /// Warnings of this change: rules that may not do what their author thinks, and why; `GET
    /// /v1/status` has all of them.
    pub warnings: Vec<String>,
    /// Limit that was set or removed, what holds now, and what held before; none of other changes.
    #[serde(default)]
    pub done: Option<String>,
}

/// A rule file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// Name of the document in errors: its path.
    #[schema(examples("new.yaml"))]
    pub name: String,
    /// Text of the document.
    #[schema(value_type = words::RuleText)]
    pub text: String,
}

/// `POST /v1/rules/diff`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CompareRules {
    /// The rule files, which are one rule set.
    pub documents: Vec<Document>,
}

/// Differences of another rule set. Rules that `limiter set` made stay, whatever the files say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RulesDiff {
    /// The rule set that was compared with.
    pub generation: u64,
    /// True if nothing would change.
    pub same: bool,
    /// Rules and settings that would be new.
    pub added: Vec<RuleLine>,
    /// Rules and settings that would be gone.
    pub removed: Vec<RuleLine>,
    /// Rules and settings that would be otherwise.
    pub changed: Vec<ChangedRule>,
    /// Number of rules and settings that would stay as they are.
    pub unchanged: usize,
    /// Rules that `limiter set` made; they stay.
    pub edits: Vec<RuleLine>,
}

/// A rule, a budget, or a bound of the whole set, in one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleLine {
    /// Subject of the line: `rule for 192.0.2.0/24`, `budget customer-a`, `replies`, `bans`.
    pub subject: String,
    /// Text of the rule or setting.
    pub text: String,
}

/// A rule or setting whose text is another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangedRule {
    /// Subject, as in [`RuleLine`].
    pub subject: String,
    /// Text now.
    pub old: String,
    /// Text that it would have.
    pub new: String,
}

/// `PUT /v1/rules`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyRules {
    /// The rule files, which are one rule set.
    pub documents: Vec<Document>,
    /// True if it may limit whoever must not be locked out.
    #[serde(default)]
    pub force: bool,
    /// On trial: without a confirmation within so many seconds, at least 1, the program goes back
    /// to the rules before by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 86_400)]
    pub confirm_seconds: Option<NonZeroU32>,
    /// The SSH session of whoever asks, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
}

/// An SSH session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// The client's address.
    #[schema(value_type = words::Address)]
    pub peer: std::net::IpAddr,
    /// The port that the server listens at.
    #[serde(default)]
    #[schema(maximum = 65_535)]
    pub port: Option<u16>,
}

impl Session {
    /// The session that a query names.
    pub(crate) fn named(peer: Option<std::net::IpAddr>, port: Option<u16>) -> Option<Self> {
        peer.map(|peer| Self { peer, port })
    }
}

/// The query of `POST /v1/reload`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams,
)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReloadRules {
    /// True if the files may leave nobody limited.
    #[serde(default)]
    pub force: bool,
}

/// The query of `GET /v1/rules`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams,
)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ExportRules {
    /// Only what `limiter set` made.
    #[serde(default)]
    pub edits: bool,
}

/// The answer to `GET /v1/rules`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Exported {
    /// The rule set that it is of.
    pub generation: u64,
    /// A rule file.
    pub text: String,
}

/// A rule set that waits to be confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Trial {
    /// Until the rules before it are in force again; 0 once they are.
    pub seconds_left: u64,
}

/// The end of a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrialEnd {
    /// True if its rules stayed.
    pub confirmed: bool,
    /// Reason why they did not stay.
    pub reason: Option<String>,
}

pub(super) fn routes() -> Routes<Service> {
    Routes::default()
        .at("/v1/reload", post(reload))
        .at_rules("/v1/rules", get(export).put(apply))
        .at_rules("/v1/rules/diff", post(compare))
        .at("/v1/rules/confirm", post(confirm))
        .at("/v1/rules/revert", post(revert))
}

/// Reads the rule files again
#[utoipa::path(
    post,
    path = "/v1/reload",
    params(ReloadRules),
    responses((status = 200, description = "Done.", body = Changed))
)]
pub(super) async fn reload(
    State(service): State<Shared>,
    Extension(peer): Extension<Peer>,
    Asked(asked): Asked<ReloadRules>,
) -> Answer {
    change(&service, &peer, |service| service.reload_rules(asked))
}

/// The rules in force as a rule file
#[utoipa::path(
    get,
    path = "/v1/rules",
    params(ExportRules),
    responses((status = 200, description = "Done.", body = Exported))
)]
pub(super) async fn export(
    State(service): State<Shared>,
    Extension(peer): Extension<Peer>,
    Asked(asked): Asked<ExportRules>,
) -> Answer {
    sliced(service, peer, JSON, |service| RulesText::begin(service, asked)).await
}

/// Puts rule files in the place of the daemon's
#[utoipa::path(
    put,
    path = "/v1/rules",
    request_body = ApplyRules,
    responses((status = 200, description = "Done.", body = Changed))
)]
pub(super) async fn apply(
    State(service): State<Shared>,
    Extension(peer): Extension<Peer>,
    JsonBody(rules): JsonBody<ApplyRules, MAX_RULES_BODY>,
) -> Answer {
    change(&service, &peer, |service| service.apply_rules(&rules))
}

/// Says what rule files would change
#[utoipa::path(
    post,
    path = "/v1/rules/diff",
    request_body = CompareRules,
    responses((status = 200, description = "Done.", body = RulesDiff))
)]
pub(super) async fn compare(
    State(service): State<Shared>,
    Extension(peer): Extension<Peer>,
    JsonBody(rules): JsonBody<CompareRules, MAX_RULES_BODY>,
) -> Answer {
    change(&service, &peer, |service| service.compare(&rules))
}

/// Keeps rules on trial
#[utoipa::path(
    post,
    path = "/v1/rules/confirm",
    responses(
        (status = 200, description = "Done.", body = Changed),
        (status = 409, description = "No rules are on trial, or their time is over.")
    )
)]
pub(super) async fn confirm(
    State(service): State<Shared>,
    Extension(peer): Extension<Peer>,
) -> Answer {
    change(&service, &peer, Service::confirm)
}

/// Takes rules on trial back
#[utoipa::path(
    post,
    path = "/v1/rules/revert",
    responses(
        (status = 200, description = "Done.", body = Changed),
        (status = 409, description = "No rules are on trial, or their time is over.")
    )
)]
pub(super) async fn revert(
    State(service): State<Shared>,
    Extension(peer): Extension<Peer>,
) -> Answer {
    change(&service, &peer, Service::revert)
}

impl Service {
    /// Reads the rule files again, and notes how that went.
    pub(crate) fn reload_rules(&mut self, asked: ReloadRules) -> Result<Changed, Refusal> {
        self.notifier.reloading();
        let result = self.try_reload(asked);
        let error = result.as_ref().err().map(ToString::to_string);
        if let Some(error) = &error {
            tracing::error!("reload refused, the rules before it stay in force: {error}");
        }
        let count = if error.is_none() { &mut self.reloads.ok } else { &mut self.reloads.failed };
        *count += 1;
        self.reloaded_at = SystemTime::now();
        self.last_reload = Reload { ok: error.is_none(), error };
        self.notify_ready();
        Ok(result?)
    }

    /// Reads the rule files again when nobody asked who could force it: after a signal or a changed
    /// file.
    pub(crate) fn reload(&mut self) -> Result<Changed, Refusal> {
        self.reload_rules(ReloadRules::default())
    }
}

impl Render for Changed {
    fn render(&self, text: &mut String) {
        let Self { generation, rules, .. } = self;
        if let Some(done) = &self.done {
            line(text, format_args!("{done}"));
        }
        let _: std::fmt::Result = writeln!(text, "{rules} rules in force, generation {generation}");
        warnings(text, &self.warnings);
    }
}

impl Render for Exported {
    fn render(&self, text: &mut String) {
        text.push_str(&self.text);
    }
}
