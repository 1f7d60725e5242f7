//! Bans: who is banned, for how long and by which rule; banning by hand, and forgetting it.

use std::fmt::Write as _;

use limiter_text::plain::clean;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::rules::Session;
use super::words;
use crate::render::{self, Render, push, seconds, table};

/// `GET /v1/bans`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Bans {
    /// The bans in force.
    pub entries: Vec<BannedSource>,
    /// Sources with strikes or earlier bans that are not banned now.
    pub watched: usize,
}

/// A banned source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Ban)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the document has a field for each kind of author"
)]
pub struct BannedSource {
    /// An IPv4 address or an IPv6 /64.
    pub source: String,
    /// Whole seconds until the ban ends, rounded up.
    pub ends_in_seconds: u64,
    /// Bans that are not forgotten, with this one.
    pub bans: u64,
    /// The rule that banned it; none when that is not in force any more, not known since an
    /// upgrade, and of a ban by hand, by another node or by a rule for requests.
    pub rule: Option<String>,
    /// The name that the author of the rule gave it.
    #[serde(default)]
    pub rule_name: Option<String>,
    /// True if it was banned by hand.
    pub by_hand: bool,
    /// True if another node banned it.
    #[serde(default)]
    pub by_node: bool,
    /// True if a rule for requests banned it, which `limiter serve` answers by.
    #[serde(default)]
    pub by_requests: bool,
    /// That rule; none if it is not known any more.
    #[serde(default)]
    pub request_rule: Option<RequestRule>,
    /// True if it was banned by a rule before an upgrade that changed the layout of the maps: which
    /// one is not known any more.
    #[serde(default)]
    pub before_upgrade: bool,
    /// The answer to a ban by hand: that the source stands for many people, in words.
    #[serde(default)]
    pub warning: Option<String>,
}

/// `PUT /v1/bans`: bans a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct SetBan {
    /// An address. An IPv6 source is its /64.
    #[schema(value_type = words::Prefix)]
    #[cfg_attr(feature = "clap", arg(value_name = "ADDRESS"))]
    pub source: String,
    /// Seconds that the ban lasts. A ban that ends later stays as it is.
    #[schema(minimum = 1, examples(60, 3600, 86400))]
    #[cfg_attr(feature = "clap", arg(
        long = "for", value_name = "TIME", value_parser = crate::arguments::some_seconds,
        help = "For how long, as in 10m, 2h or 1d",
    ))]
    pub seconds: u64,
    /// True if it may lock out the client.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "clap", arg(
        long, action = clap::ArgAction::SetTrue,
        help = "Ban it even if this SSH session comes from it",
    ))]
    pub force: bool,
    /// The SSH session of the client, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "clap", arg(skip))]
    pub session: Option<Session>,
}

/// A rule for requests, as `limiter check` shows it.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(deny_unknown_fields)]
pub struct RequestRule {
    /// Its domain.
    pub domain: String,
    /// Its keys and values, in one line.
    #[schema(examples("auth_type=login remote_address"))]
    pub rule: String,
}

/// `PUT /v1/bans/requests`: bans sources of requests over limits that `limiter serve` keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetRequestBans {
    /// The bans, each for itself.
    #[schema(max_items = 32)]
    pub bans: Vec<SetRequestBan>,
}

/// A ban by a rule for requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetRequestBan {
    /// An address. An IPv6 source is its /64.
    #[schema(value_type = words::Prefix)]
    pub source: String,
    /// The domain of the rule.
    pub domain: String,
    /// Its keys and values, in one line.
    #[schema(examples("auth_type=login remote_address"))]
    pub rule: String,
    /// Milliseconds of the first ban. Each further one is twice as long.
    #[schema(minimum = 1000, examples(60_000, 600_000))]
    pub first_ms: u64,
    /// Milliseconds of the longest ban.
    #[schema(minimum = 1000, examples(86_400_000))]
    pub longest_ms: u64,
    /// Milliseconds after which earlier bans are forgotten.
    #[schema(minimum = 1000, examples(3_600_000))]
    pub memory_ms: u64,
}

/// The answer to it: what became of each, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestBans {
    /// What became of them.
    pub answers: Vec<RequestBanAnswer>,
}

/// What became of a ban by a rule for requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestBanAnswer {
    /// The outcome.
    pub became: RequestBanBecame,
    /// Reason why it was refused.
    #[serde(default)]
    pub why: Option<String>,
}

/// What became of a ban by a rule for requests, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RequestBanBecame {
    /// The source is banned by it.
    Made,
    /// It was banned already.
    InForce,
    /// The rate of new bans (`bans` in a rule file) was used up.
    OverBudget,
    /// A guard refused it.
    Refused,
}

impl RequestRule {
    /// `requests of auth: auth_type=login remote_address`.
    pub fn shown(&self) -> String {
        format!("requests of {}: {}", self.domain, self.rule)
    }
}

/// The query of `DELETE /v1/bans`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Unban {
    /// An address, or a prefix for all sources in it.
    #[param(value_type = words::Prefix)]
    #[cfg_attr(feature = "clap", arg(value_name = "ADDRESS|PREFIX"))]
    #[cfg_attr(feature = "clap", arg(help = "Whom to leave to the rules again"))]
    pub source: String,
}

/// The answer to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unbanned {
    /// Sources that were forgotten: their bans and strikes.
    pub forgotten: usize,
}

impl BannedSource {
    /// The author of the ban: the rule, or in parentheses who else it was.
    pub fn author(&self) -> String {
        if let Some(rule) = &self.request_rule {
            return rule.shown();
        }
        let rule = self.rule_name.as_ref().or(self.rule.as_ref());
        let others = [
            (self.by_hand, "(by hand)"),
            (self.by_node, "(another node)"),
            (self.by_requests, "(a rule for requests)"),
            (self.before_upgrade, "(before an upgrade)"),
        ];
        let other = || others.iter().find(|(by, _)| *by).map_or("(removed rules)", |(_, by)| by);
        rule.cloned().unwrap_or_else(|| other().to_owned())
    }
}

impl Render for BannedSource {
    fn render(&self, text: &mut String) {
        let Self { source, ends_in_seconds, by_hand, .. } = self;
        // A ban that ends later stays, with its author.
        let by = if *by_hand { String::new() } else { format!(" by {}", clean(&self.author())) };
        let _: std::fmt::Result =
            writeln!(text, "{source} is banned for {}{by}", seconds(*ends_in_seconds));
        render::warnings(text, self.warning.as_slice());
    }
}

impl Render for Unbanned {
    fn render(&self, text: &mut String) {
        let sources = if self.forgotten == 1 { "source" } else { "sources" };
        let _: std::fmt::Result = writeln!(text, "{} {sources} forgotten", self.forgotten);
    }
}

impl Render for Bans {
    fn render(&self, text: &mut String) {
        if self.entries.is_empty() {
            text.push_str("nobody is banned\n");
        } else {
            let mut table = table(&["SOURCE", ">ENDS IN", ">BANS", "RULE"]);
            for entry in &self.entries {
                table.add_row([
                    entry.source.clone(),
                    seconds(entry.ends_in_seconds),
                    entry.bans.to_string(),
                    entry.author(),
                ]);
            }
            push(text, &table);
        }
        if self.watched > 0 {
            let _: std::fmt::Result =
                writeln!(text, "{} more with strikes or earlier bans", self.watched);
        }
    }
}
