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
pub struct BannedSource {
    /// An IPv4 address or an IPv6 /64.
    pub source: String,
    /// Whole seconds until the ban ends, rounded up.
    pub ends_in_seconds: u64,
    /// Bans that are not forgotten, with this one.
    pub bans: u64,
    /// The rule that banned it; none when that is not in force any more, not known since an
    /// upgrade, and of a ban by hand or by another node.
    pub rule: Option<String>,
    /// The name that the author of the rule gave it.
    #[serde(default)]
    pub rule_name: Option<String>,
    /// True if it was banned by hand.
    pub by_hand: bool,
    /// True if another node banned it.
    #[serde(default)]
    pub by_node: bool,
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
#[serde(deny_unknown_fields)]
pub struct SetBan {
    /// An address. An IPv6 source is its /64.
    #[schema(value_type = words::Prefix)]
    pub source: String,
    /// Seconds that the ban lasts. A ban that ends later stays as it is.
    #[schema(minimum = 1, examples(60, 3600, 86400))]
    pub seconds: u64,
    /// True if it may lock out the client.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// The SSH session of the client, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
}

/// The query of `DELETE /v1/bans`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Unban {
    /// An address, or a prefix for all sources in it.
    #[param(value_type = words::Prefix)]
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
    pub(crate) fn author(&self) -> String {
        let rule = self.rule_name.as_ref().or(self.rule.as_ref());
        let other = || match (self.by_hand, self.by_node, self.before_upgrade) {
            (true, _, _) => "(by hand)",
            (_, true, _) => "(another node)",
            (_, _, true) => "(before an upgrade)",
            (false, false, false) => "(removed rules)",
        };
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
