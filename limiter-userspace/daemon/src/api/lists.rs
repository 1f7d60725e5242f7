//! Allow and deny lists.

use std::fmt::Write as _;
use std::net::IpAddr;

use limiter_text::plain::clean;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::rules::Session;
use super::words;
use crate::render::{Render, line, push, table};

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
    /// Addresses and prefixes. A source is on one list at most: the last word counts.
    #[schema(value_type = Vec<words::Prefix>)]
    pub sources: Vec<String>,
    /// Seconds until they expire; never when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples(1, 60, 86400))]
    pub seconds: Option<u64>,
    /// The reason for it, which is shown with the entries: up to 128 characters. It is this node's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<words::Reason>)]
    pub reason: Option<String>,
    /// True if it may lock out whoever asks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// The SSH session of whoever asks, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
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
    /// True if it may lock out whoever asks.
    pub force: bool,
    /// The client's address of the SSH session of whoever asks, if it is one.
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
    /// How each of the sources stands now and stood before, if they are at most ten.
    #[serde(default)]
    pub done: Vec<String>,
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
}

impl Render for ListsChanged {
    fn render(&self, text: &mut String) {
        let Self { allowed, denied, not_listed, done } = self;
        for done in done {
            line(text, format_args!("{done}"));
        }
        let _: std::fmt::Result = writeln!(text, "{allowed} allowed, {denied} denied");
        if *not_listed > 0 {
            let _: std::fmt::Result = writeln!(text, "{not_listed} of those named were on no list");
        }
    }
}

impl Render for Lists {
    fn render(&self, text: &mut String) {
        if self.entries.is_empty() {
            text.push_str("the lists are empty\n");
            return;
        }
        let told = self.entries.iter().any(|entry| entry.reason.is_some());
        let columns = ["SOURCE", "LIST", ">EXPIRES IN", "REASON"];
        let mut table = table(columns.get(..if told { 4 } else { 3 }).unwrap_or(&columns));
        for entry in &self.entries {
            let expires = entry
                .expires_in_seconds
                .map_or("never".to_owned(), |seconds| format!("{seconds} s"));
            let mut row = vec![entry.source.clone(), entry.list.name().to_owned(), expires];
            if told {
                row.push(clean(entry.reason.as_deref().unwrap_or_default()));
            }
            table.add_row(row);
        }
        push(text, &table);
    }
}
