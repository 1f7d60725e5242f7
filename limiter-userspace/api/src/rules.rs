//! Whole rule sets: the rule files again, others in their place, on trial or not.

use std::fmt::Write as _;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::words;
use crate::render::{self, Render, line, warnings};

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
    /// The consequences for sources that have used up a limit that changed; none if no such limit
    /// changed.
    #[serde(default)]
    pub used: Option<String>,
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
    /// Processes of `limiter serve` that answer by other rules for requests than these files have,
    /// and files that they would refuse.
    #[serde(default)]
    pub requests: Vec<String>,
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
    /// True if it may limit anybody who must not be locked out.
    #[serde(default)]
    pub force: bool,
    /// On trial: without a confirmation within so many seconds, at least 1, the program goes back
    /// to the previous rules by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 86_400)]
    pub confirm_seconds: Option<NonZeroU32>,
    /// The SSH session of anybody who asks, if it is one.
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
    pub fn named(peer: Option<std::net::IpAddr>, port: Option<u16>) -> Option<Self> {
        peer.map(|peer| Self { peer, port })
    }

    /// The words of a query that name a session.
    pub fn words(session: Option<Self>) -> (Option<std::net::IpAddr>, Option<u16>) {
        (session.map(|session| session.peer), session.and_then(|session| session.port))
    }
}

/// The query of `POST /v1/reload`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams,
)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ReloadRules {
    /// True if the files may leave nobody limited, or lock out anybody who asks.
    #[cfg_attr(feature = "clap", arg(long, help = "Take files that leave nobody limited"))]
    pub force: bool,
    /// The client's address of the SSH session of anybody who asks, if it is one.
    #[param(value_type = Option<words::Address>)]
    #[cfg_attr(feature = "clap", arg(skip))]
    pub peer: Option<std::net::IpAddr>,
    /// The port that its server listens at.
    #[param(maximum = 65_535)]
    #[cfg_attr(feature = "clap", arg(skip))]
    pub port: Option<u16>,
}

impl ReloadRules {
    /// The SSH session of anybody who asks.
    pub fn session(&self) -> Option<Session> {
        Session::named(self.peer, self.port)
    }
}

/// The query of `POST /v1/rules/confirm`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams,
)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ConfirmRules {
    /// The client's address of the SSH session of anybody who asks, if it is one.
    #[param(value_type = Option<words::Address>)]
    pub peer: Option<std::net::IpAddr>,
    /// The port that its server listens at.
    #[param(maximum = 65_535)]
    pub port: Option<u16>,
}

impl ConfirmRules {
    /// The SSH session of anybody who asks.
    pub fn session(&self) -> Option<Session> {
        Session::named(self.peer, self.port)
    }
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
    /// Rule files whose rules for requests (`requests`) are not in `text`: it was written anew.
    #[serde(default)]
    pub without_requests_of: Vec<String>,
    /// A rule file.
    pub text: String,
}

/// A rule set that waits to be confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Trial {
    /// Until the previous rules are in force again; 0 once they are.
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

impl Render for Changed {
    fn render(&self, text: &mut String) {
        let Self { generation, rules, .. } = self;
        if let Some(done) = &self.done {
            line(text, format_args!("{done}"));
        }
        let rules = render::rules(*rules);
        let _: std::fmt::Result = writeln!(text, "{rules} in force, generation {generation}");
        if let Some(used) = &self.used {
            line(text, format_args!("{used}"));
        }
        warnings(text, &self.warnings);
    }
}

impl Render for Exported {
    fn render(&self, text: &mut String) {
        text.push_str(&self.text);
    }
}
