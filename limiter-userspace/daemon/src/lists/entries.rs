//! Entries of the lists.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use limiter_common::time::Ticks;
use limiter_common::wire::{ListEntry, Listed};
use limiter_rules::Selector;

use crate::api::lists::ListName;

/// Entries by their sources.
pub(super) type Entries = BTreeMap<Selector, Entry>;

/// An entry of a list.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The entry as the maps have it.
    pub(super) listed: ListEntry,
    /// The reason that was given for it.
    pub(super) reason: Option<Arc<str>>,
    /// The program or list that wrote it; none for a person.
    pub(super) by: Option<Arc<str>>,
}

/// The list of an entry, as people name it.
pub(crate) const fn name(listed: Listed) -> ListName {
    match listed {
        Listed::Deny => ListName::Deny,
        Listed::Allow | Listed::Management => ListName::Allow,
    }
}

/// The time that is `time` after `now`.
pub(super) fn after(now: Ticks, time: Duration) -> Ticks {
    now.plus(Ticks::from_nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
}
