//! The documents about allow and deny lists.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::rules::Session;

/// Which list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ListName {
    /// Packets pass, whatever the rules say.
    #[default]
    Allow,
    /// Packets are dropped.
    Deny,
}

impl ListName {
    /// Its name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// `PUT /v1/lists`: puts sources on a list, all or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetList {
    /// Which list.
    pub list: ListName,
    /// Addresses and prefixes. A source is on one list at most: the last word counts.
    pub sources: Vec<String>,
    /// For how many seconds; for ever when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// Whether it may lock out whoever asks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// The SSH session of whoever asks, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
}

/// The query of `DELETE /v1/lists`: one of the first two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UnsetList {
    /// An address or a prefix. That it is on no list is an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Addresses and prefixes with commas between them, all or none. Those on no list are passed
    /// over, and counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sources: Option<String>,
    /// Whether it may lock out whoever asks.
    pub force: bool,
    /// The client's address of the SSH session of whoever asks, if it is one.
    pub peer: Option<IpAddr>,
    /// The port that its server listens at.
    pub port: Option<u16>,
}

/// The answer to a change of the lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListsChanged {
    /// Entries on the allow list.
    pub allowed: usize,
    /// Entries on the deny list.
    pub denied: usize,
    /// Of several that were to be taken off: those that were on no list.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_listed: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// `GET /v1/lists`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lists {
    /// All entries that have not expired.
    pub entries: Vec<ListedSource>,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedSource {
    /// An address or a prefix.
    pub source: String,
    /// Which list it is on.
    pub list: ListName,
    /// Whole seconds until it expires, rounded up; none for never.
    pub expires_in_seconds: Option<u64>,
}
