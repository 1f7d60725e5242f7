//! Queries about a source over all entries of the lists: those of people and programs, and those of
//! rule files.

use std::ops::Bound;

use limiter_api::lists::{ListName, ListedSource, ListsChanged};
use limiter_api::render::seconds;
use limiter_common::time::Ticks;
use limiter_common::wire::{ListEntry, Listed};
use limiter_rules::Selector;
use limiter_text::plain::clean;

use super::ListStore;
use super::entries::{Entry, name};
use super::laid::Laid;
use super::standing::{All, Changes, Standing, UNCHANGED};

impl ListStore {
    /// The sources after `last` in their order, with their reported entries, except expired ones.
    pub(crate) fn after(
        &self,
        last: Option<&Selector>,
        now: Ticks,
    ) -> impl Iterator<Item = (Selector, Vec<ListedSource>)> {
        let from = last.map_or(Bound::Unbounded, |last| Bound::Excluded(*last));
        let mut entries = self.entries.range((from, Bound::Unbounded)).peekable();
        let mut file = self.file.range((from, Bound::Unbounded)).peekable();
        std::iter::from_fn(move || {
            let next = [entries.peek().map(|(at, _)| **at), file.peek().map(|(at, _)| **at)];
            let selector = next.into_iter().flatten().min()?;
            let own = entries.next_if(|(at, _)| **at == selector);
            let of_file = file.next_if(|(at, _)| **at == selector);
            let both = [own, of_file].into_iter().flatten();
            let reported = both.filter_map(|(at, entry)| self.listed(at, entry, now));
            Some((selector, reported.collect()))
        })
    }

    /// The reported form of an entry; `None` if it has expired.
    pub(super) fn listed(&self, at: &Selector, entry: &Entry, now: Ticks) -> Option<ListedSource> {
        let listed = entry.listed.at(now)?;
        let left = |expires: Ticks| expires.since(now).as_nanos().div_ceil(1_000_000_000);
        Some(ListedSource {
            source: at.to_string(),
            list: name(listed),
            expires_in_seconds: entry.listed.expires().map(left),
            reason: entry.reason.as_deref().map(str::to_owned),
            by: entry.by.as_deref().map(str::to_owned),
            not_saved: !entry.is_of_rule_file() && self.store.lacks(at),
            not_in_force: self.overruled(at, entry, now),
        })
    }

    /// Reason why an entry is not in force; `None` if it is.
    pub(super) fn overruled(&self, at: &Selector, entry: &Entry, now: Ticks) -> Option<String> {
        let decides = self.deciding(at, now)?;
        if std::ptr::eq(decides, entry) {
            return None;
        }
        let around = |at: &Selector| self.file.get(at).is_some_and(|it| std::ptr::eq(it, decides));
        Some(match at.wider().find(around) {
            Some(prefix) => format!("it is inside {prefix}, which is {}", decides.reported()),
            None => format!("it is {}", decides.reported()),
        })
    }

    /// The reported entries beside the one that decides on a source, which are not in force.
    pub(crate) fn beside(&self, source: &Selector, now: Ticks) -> Vec<ListedSource> {
        let mut at = std::iter::once(*source).chain(source.wider());
        let Some(at) = at.find(|at| self.deciding(at, now).is_some()) else { return Vec::new() };
        let both = [self.entries.get(&at), self.file.get(&at)].into_iter().flatten();
        let reported = both.filter_map(|entry| self.listed(&at, entry, now));
        reported.filter(|reported| reported.not_in_force.is_some()).collect()
    }

    pub(super) fn all(&self) -> All<'_> {
        All { entries: &self.entries, changes: &UNCHANGED, file: &self.file }
    }

    /// The entry that the maps hold for exactly these sources.
    pub(super) fn deciding(&self, at: &Selector, now: Ticks) -> Option<&Entry> {
        self.all().deciding(at, now)
    }

    /// Returns true if there is an entry for exactly these sources.
    pub(super) fn is_listed(&self, at: &Selector) -> bool {
        self.entries.contains_key(at) || self.file.contains_key(at)
    }

    /// Returns true if only the rule file has an entry for exactly these sources.
    pub(crate) fn is_of_rule_file(&self, at: &Selector) -> bool {
        !self.entries.contains_key(at) && self.file.contains_key(at)
    }

    /// Number of entries on the two lists.
    pub(crate) fn totals(&self) -> ListsChanged {
        self.totals.clone()
    }

    /// Describes the present state of a source on the lists, by its own entry or else by the one
    /// around it.
    pub(crate) fn reported(&self, source: &Selector, now: Ticks) -> String {
        for selector in std::iter::once(*source).chain(source.wider()) {
            let entry = self.deciding(&selector, now);
            let Some((entry, listed)) =
                entry.and_then(|entry| Some((entry, entry.listed.at(now)?)))
            else {
                continue;
            };
            let what = match listed {
                Listed::Allow | Listed::Management => "allowed",
                Listed::Deny => "denied",
            };
            let time = match entry.listed.expires() {
                Some(end) => {
                    let left = end.since(now).as_nanos().div_ceil(1_000_000_000);
                    format!("for {}", seconds(left))
                }
                None if !entry.is_of_rule_file() && self.store.lacks(&selector) => {
                    "until a reboot (not saved)".to_owned()
                }
                None => "for ever".to_owned(),
            };
            let by = match (entry.is_of_rule_file(), selector == *source) {
                (false, true) => String::new(),
                (false, false) => format!(" by {selector}"),
                (true, true) => " by the rule file".to_owned(),
                (true, false) => format!(" by {selector} of the rule file"),
            };
            let why = entry.reason.as_deref().map(|reason| format!(" ({})", clean(reason)));
            return format!("{what} {time}{by}{}", why.unwrap_or_default());
        }
        "on no list".to_owned()
    }

    /// The answer to a change, with the reason if it is not on disk.
    pub(crate) fn with_store(&self, changed: ListsChanged) -> ListsChanged {
        ListsChanged { not_saved: self.not_saved().map(str::to_owned), ..changed }
    }

    /// Reason why changes are not on disk; `None` if they are.
    pub(crate) fn not_saved(&self) -> Option<&str> {
        self.store.not_saved()
    }

    /// Returns true if the entry that decides on a source could not be written to disk.
    pub(crate) fn lacks(&self, source: &Selector, now: Ticks) -> bool {
        let mut at = std::iter::once(*source).chain(source.wider());
        let decides = at.find_map(|at| Some((at, self.deciding(&at, now)?)));
        decides.is_some_and(|(at, entry)| !entry.is_of_rule_file() && self.store.lacks(&at))
    }

    /// The list that decides on a source now; `None` if the rules decide.
    pub(crate) fn of(&self, source: &Selector, now: Ticks) -> Option<ListName> {
        self.entry(source, now).and_then(|entry| entry.at(now)).map(name)
    }

    /// Reason and author of the entry that decides on a source now.
    pub(crate) fn words_of(&self, source: &Selector, now: Ticks) -> [Option<&str>; 2] {
        let entry = self.found(source, now);
        let reason = entry.and_then(|entry| entry.reason.as_deref());
        [reason, entry.and_then(|entry| entry.by.as_deref())]
    }

    /// The entry that the program finds for a source: its own, or else that of the longest prefix,
    /// unless it has expired. Uses look-ups, because a proxy may ask for each of its requests.
    pub(crate) fn entry(&self, source: &Selector, now: Ticks) -> Option<ListEntry> {
        self.found(source, now).map(|entry| entry.listed)
    }

    pub(super) fn found(&self, source: &Selector, now: Ticks) -> Option<&Entry> {
        let longest = || {
            let prefix = source.wider().find(|prefix| self.is_listed(prefix))?;
            self.deciding(&prefix, now)
        };
        self.deciding(source, now).or_else(longest)
    }

    /// Effect of the lists on a source, now and after the temporary entries have ended, if
    /// `changes` were made; also with other entries of rule files, if given.
    pub(crate) fn standing(
        &self,
        source: &Selector,
        now: Ticks,
        (changes, laid): (&Changes, Option<&Laid>),
    ) -> Standing {
        let file = laid.map_or(&self.file, |laid| &laid.entries);
        let all = All { entries: &self.entries, changes, file };
        for selector in std::iter::once(*source).chain(source.wider()) {
            let entry = all.deciding(&selector, now).map(|entry| entry.listed);
            let Some((entry, listed)) = entry.and_then(|entry| Some((entry, entry.at(now)?)))
            else {
                continue;
            };
            match listed {
                Listed::Deny => return Standing::Denied(selector),
                Listed::Allow | Listed::Management if entry.expires().is_none() => {
                    return Standing::Safe;
                }
                Listed::Allow | Listed::Management => {}
            }
        }
        Standing::Open
    }
}
