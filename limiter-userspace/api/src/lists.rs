//! Allow and deny lists.

use std::fmt::Write as _;
use std::net::IpAddr;

use limiter_text::plain::clean;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::rules::Session;
use super::words;
use crate::render::{self, Render, line, push, seconds, table};

/// The author of entries that rule files have.
pub const RULE_FILE: &str = "rule file";

/// One of the two lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ListName {
    /// Packets pass, whatever the rules say.
    #[default]
    Allow,
    /// Packets are dropped.
    Deny,
}

impl ListName {
    /// Name of the list in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// `PUT /v1/lists`: puts sources on a list, all or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetList {
    /// List that they are put on.
    pub list: ListName,
    /// Addresses and prefixes. A source is on one list at most: the last word of a person counts.
    #[serde(default)]
    #[schema(value_type = Vec<words::Prefix>)]
    pub sources: Vec<String>,
    /// More of them, each for a time of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timed: Vec<Timed>,
    /// Seconds until they expire; never when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples(1, 60, 86400))]
    pub seconds: Option<u64>,
    /// The program or list that writes the entries, as `fail2ban`; a person when left out. Entries
    /// of a program replace and shorten none of a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<words::Reason>)]
    pub by: Option<String>,
    /// True if entries that the same program wrote before, and that are not named, are to go.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replace: bool,
    /// True if sources that a program may not list are to be a refusal of all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// The reason for it, which is shown with the entries: up to 128 characters. It is this node's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<words::Reason>)]
    pub reason: Option<String>,
    /// True if it may lock out anybody who asks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// The SSH session of anybody who asks, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
}

/// A source that is listed for a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Timed {
    /// An address or a prefix.
    #[schema(value_type = words::Prefix)]
    pub source: String,
    /// Seconds until it expires.
    #[schema(examples(1, 60, 86400))]
    pub seconds: u64,
    /// The reason for this one, in the place of that of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<words::Reason>)]
    pub reason: Option<String>,
}

/// The query of `DELETE /v1/lists`: one of the first two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct UnsetList {
    /// An address or a prefix. That it is on no list is an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<words::Prefix>)]
    pub source: Option<String>,
    /// Addresses and prefixes with commas between them, all or none. Those on no list are passed
    /// over, and counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<words::Prefixes>)]
    pub sources: Option<String>,
    /// The program or list that takes its own entries off; a person when left out, who takes off
    /// any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<words::Reason>)]
    pub by: Option<String>,
    /// True if it may lock out anybody who asks.
    pub force: bool,
    /// The client's address of the SSH session of anybody who asks, if it is one.
    #[param(value_type = Option<words::Address>)]
    pub peer: Option<IpAddr>,
    /// The port that its server listens at.
    #[param(maximum = 65_535)]
    pub port: Option<u16>,
}

/// The answer to a change of the lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListsChanged {
    /// Entries on the allow list.
    pub allowed: usize,
    /// Entries on the deny list.
    pub denied: usize,
    /// Sources that were on no list, of several that were to be taken off.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schema(default = 0)]
    pub not_listed: usize,
    /// Sources that are on the list now and were not before.
    #[serde(default)]
    pub new: usize,
    /// Sources that were on the list before, also for another time or by somebody else.
    #[serde(default)]
    pub kept: usize,
    /// Entries that went: of the same program, or inside what a person listed otherwise.
    #[serde(default)]
    pub off: usize,
    /// Sources that stay as they are, and why.
    #[serde(default)]
    pub skipped: Vec<Skipped>,
    /// Why the change is not on disk; none if it is. A reboot takes it back then.
    #[serde(default)]
    pub not_saved: Option<String>,
    /// How each of the sources stands now and stood before, if they are at most ten.
    #[serde(default)]
    pub done: Vec<String>,
    /// Denied sources that stand for many people, in words, the first ten; and that limits are off.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// A source that stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Skipped {
    /// The address or prefix.
    pub source: String,
    /// The reason.
    pub why: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// `GET /v1/lists`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Lists {
    /// All entries that have not expired.
    pub entries: Vec<ListedSource>,
    /// Why changes of the lists are not on disk; none if they are. A reboot takes them back.
    #[serde(default)]
    pub not_saved: Option<String>,
}

/// An entry of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ListEntry)]
pub struct ListedSource {
    /// An address or a prefix.
    pub source: String,
    /// List that the source is on.
    pub list: ListName,
    /// Whole seconds until it expires, rounded up; none for never.
    pub expires_in_seconds: Option<u64>,
    /// The reason that was given for it; none if none was.
    #[serde(default)]
    pub reason: Option<String>,
    /// The program or list that wrote it, or `rule file`; none for a person.
    #[serde(default)]
    pub by: Option<String>,
    /// True if a reboot forgets it, because it could not be saved.
    #[serde(default)]
    pub not_saved: bool,
    /// The entry that decides in its place, in words; none if it is in force.
    #[serde(default)]
    pub not_in_force: Option<String>,
}

/// Sources that stay as they are, of which a table has so many.
const MOST_SKIPPED: usize = 100;

impl Render for ListsChanged {
    fn render(&self, text: &mut String) {
        let Self { allowed, denied, not_listed, skipped, not_saved, done, warnings, .. } = self;
        for done in done {
            line(text, format_args!("{done}"));
        }
        for Skipped { source, why } in skipped.iter().take(MOST_SKIPPED) {
            line(text, format_args!("skipped {source}: {}", clean(why)));
        }
        if skipped.len() > MOST_SKIPPED {
            let more = skipped.len() - MOST_SKIPPED;
            line(text, format_args!("skipped {more} more: `--output json` has all"));
        }
        if let Some(error) = not_saved {
            line(text, format_args!("not saved, so a reboot takes this back: {}", clean(error)));
        }
        let _: std::fmt::Result = writeln!(text, "{allowed} allowed, {denied} denied");
        if *not_listed > 0 {
            let _: std::fmt::Result = writeln!(text, "{not_listed} of those named were on no list");
        }
        render::warnings(text, warnings);
    }
}

impl Render for Lists {
    fn render(&self, text: &mut String) {
        if self.entries.is_empty() {
            text.push_str("the lists are empty\n");
            return;
        }
        let reported = self.entries.iter().any(|entry| entry.reason.is_some());
        let programs = self.entries.iter().any(|entry| entry.by.is_some());
        let overruled = self.entries.iter().any(|entry| entry.not_in_force.is_some());
        let mut columns = vec!["SOURCE", "LIST", ">EXPIRES IN"];
        columns.extend(programs.then_some("?BY"));
        columns.extend(reported.then_some("?REASON"));
        columns.extend(overruled.then_some("?NOT IN FORCE"));
        let mut table = table(&columns);
        for entry in &self.entries {
            let expires = match entry.expires_in_seconds {
                Some(left) => seconds(left),
                None if entry.not_saved => "at a reboot".to_owned(),
                None => "never".to_owned(),
            };
            let mut row = vec![entry.source.clone(), entry.list.name().to_owned(), expires];
            if programs {
                row.push(clean(entry.by.as_deref().unwrap_or("a person")));
            }
            if reported {
                row.push(clean(entry.reason.as_deref().unwrap_or_default()));
            }
            if overruled {
                row.push(clean(entry.not_in_force.as_deref().unwrap_or_default()));
            }
            table.add_row(row);
        }
        push(text, &table);
        if let Some(error) = &self.not_saved {
            line(text, format_args!("not all of it is saved: {}", clean(error)));
        }
    }
}
