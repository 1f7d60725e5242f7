//! Entries of the lists.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use limiter_api::lists::{ListName, RULE_FILE};
use limiter_common::time::Ticks;
use limiter_common::wire::{ListEntry, Listed};
use limiter_rules::Selector;
use limiter_text::plain::clean;

pub(crate) type Entries = BTreeMap<Selector, Entry>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The entry as the maps hold it.
    pub(super) listed: ListEntry,
    pub(super) reason: Option<Arc<str>>,
    /// The program or list that wrote the entry, or [`RULE_FILE`]; `None` for a person.
    pub(super) by: Option<Arc<str>>,
}

impl Entry {
    /// Returns true if the entry comes from a person: typed, or in a rule file.
    pub(super) fn is_of_people(&self) -> bool {
        self.by.is_none() || self.is_of_rule_file()
    }

    pub(super) const fn is_of_rule_file(&self) -> bool {
        self.listed.is_of_rule_file()
    }

    /// Describes the entry and its author: `denied by fail2ban (sshd)`.
    pub(super) fn reported(&self) -> String {
        let what = match self.listed.verdict() {
            Some(Listed::Deny) => "denied",
            _ => "allowed",
        };
        let by = match self.by.as_deref() {
            None => "hand",
            Some(RULE_FILE) => "the rule file",
            Some(by) => by,
        };
        match self.reason.as_deref() {
            Some(reason) => format!("{what} by {by} ({})", clean(reason)),
            None => format!("{what} by {by}"),
        }
    }
}

pub(crate) const fn name(listed: Listed) -> ListName {
    match listed {
        Listed::Deny => ListName::Deny,
        Listed::Allow | Listed::Management => ListName::Allow,
    }
}

pub(super) fn after(now: Ticks, time: Duration) -> Ticks {
    now.plus(Ticks::from_nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
}
