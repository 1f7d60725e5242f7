//! Permission to change entries: a program may not replace or shorten an entry of a person, and
//! removes only its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use limiter_api::lists::{RULE_FILE, SetList, Skipped};
use limiter_common::time::Ticks;
use limiter_common::wire::{ListEntry, Listed};
use limiter_rules::{Selector, source_text};

use super::entries::{Entry, after};
use super::{Changes, ListStore, reason, verdict};
use crate::error::ServiceError;

/// Author of changes by other nodes of a cluster.
pub(crate) const CLUSTER: &str = "cluster";

/// A change of the lists as it would be made.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// Entries that are new or changed.
    pub(super) put: BTreeMap<Selector, Entry>,
    pub(super) gone: BTreeSet<Selector>,
    /// Number of sources that others have listed for at least as long, and that stay so.
    pub(super) stay: usize,
    /// Sources left unchanged, with the reason.
    pub(super) skipped: Vec<Skipped>,
}

/// Decision about an entry that a program wants.
enum Leave {
    Take,
    /// The existing entry has the same effect.
    Stays,
    /// Another entry takes precedence.
    Refused(String),
}

impl Wanted {
    /// The change, for callers that examine its effect.
    pub(crate) fn changes(&self) -> Changes {
        let gone = self.gone.iter().map(|selector| (*selector, None));
        gone.chain(self.put.iter().map(|(at, entry)| (*at, Some(entry.clone())))).collect()
    }

    /// The sources put on a list, each with the end of its entry.
    pub(crate) fn put(&self) -> impl Iterator<Item = (&Selector, Option<Ticks>)> {
        self.put.iter().map(|(selector, entry)| (selector, entry.listed.expires()))
    }

    /// The sources whose entries are removed.
    pub(crate) fn gone(&self) -> impl Iterator<Item = &Selector> {
        self.gone.iter()
    }
}

/// The author named by a request; `None` for a person.
pub(crate) fn author(by: Option<&str>) -> Result<Option<Arc<str>>, ServiceError> {
    let problem = |problem: String| ServiceError::Word { word: "by", problem };
    match by {
        None => Ok(None),
        Some(CLUSTER) => Err(problem(format!("{CLUSTER:?} stands for other nodes: name another"))),
        Some(RULE_FILE) => {
            Err(problem(format!("{RULE_FILE:?} stands for the rule files: name another")))
        }
        Some(name) => reason::checked(name).map(Some).map_err(|error| match error {
            ServiceError::Word { problem: why, .. } => problem(why),
            other => other,
        }),
    }
}

impl ListStore {
    /// Prepares the change for a request. `managed` and `hazard` say why a source must not be
    /// listed: for a person this refuses the whole request, for a program it skips the source.
    pub(crate) fn wanted(
        &self,
        request: &SetList,
        by: Option<&Arc<str>>,
        now: Ticks,
        managed: impl Fn(&Selector) -> Option<Selector>,
        hazard: impl Fn(&Selector) -> Option<String>,
    ) -> Result<Wanted, ServiceError> {
        let listed = verdict(request.list);
        let reason = request.reason.as_deref().map(reason::checked).transpose()?;
        // Many sources have the same reason.
        let mut reasons: BTreeMap<&str, Arc<str>> = BTreeMap::new();
        let mut named: BTreeMap<Selector, (Option<u64>, Option<Arc<str>>)> = BTreeMap::new();
        let sources = request.sources.iter().map(|source| (source, request.seconds, None));
        let timed = request.timed.iter();
        let timed = timed.map(|it| (&it.source, Some(it.seconds), it.reason.as_deref()));
        for (source, seconds, own) in sources.chain(timed) {
            if seconds == Some(0) {
                return Err(ServiceError::NoTime);
            }
            let reason = match own {
                None => reason.clone(),
                Some(own) => Some(match reasons.get(own) {
                    Some(known) => Arc::clone(known),
                    None => Arc::clone(reasons.entry(own).or_insert(reason::checked(own)?)),
                }),
            };
            let selector = source_text::parse(source)?;
            // Two addresses of one /64: the longer time applies to both.
            let known = named.entry(selector).or_insert_with(|| (seconds, reason.clone()));
            if known.0.is_some_and(|known| seconds.is_none_or(|seconds| seconds > known)) {
                *known = (seconds, reason);
            }
        }
        let mut wanted = Wanted::default();
        for (selector, (seconds, reason)) in named {
            if listed == Listed::Deny
                && let Some(prefix) = managed(&selector)
            {
                let error = ServiceError::Management { selector, prefix };
                if by.is_none() || request.strict {
                    return Err(error);
                }
                wanted.skip(selector, format!("it is inside the management prefix {prefix}"));
                continue;
            }
            if !request.force
                && let Some(why) = hazard(&selector)
            {
                if by.is_none() || request.strict {
                    let why = format!("{selector}: {why}: leave it out, or use --force");
                    return Err(ServiceError::Objection(why));
                }
                wanted.skip(selector, why);
                continue;
            }
            let expires = seconds.map(|seconds| after(now, Duration::from_secs(seconds)));
            let entry = ListEntry::new(listed, expires);
            if let Some(by) = by {
                match self.leave(&selector, entry, by, now) {
                    Leave::Take => {}
                    Leave::Stays => {
                        wanted.stay += 1;
                        continue;
                    }
                    Leave::Refused(why) => {
                        wanted.skip(selector, why);
                        continue;
                    }
                }
            }
            wanted.put.insert(selector, Entry { listed: entry, reason, by: by.cloned() });
        }
        wanted.gone = self.going(request, by.map(|by| &**by), &wanted.put, now);
        self.check_room(&wanted)?;
        Ok(wanted)
    }

    /// Entries that a change removes: those of the same program that it does not name, and those of
    /// programs inside a prefix that a person puts on the other list.
    fn going(
        &self,
        request: &SetList,
        by: Option<&str>,
        put: &BTreeMap<Selector, Entry>,
        now: Ticks,
    ) -> BTreeSet<Selector> {
        let listed = verdict(request.list);
        let others = self.entries.iter().filter(|(at, entry)| {
            entry.listed.at(now).is_some() && entry.by.is_some() && !put.contains_key(at)
        });
        let goes = |(at, entry): &(&Selector, &Entry)| match by {
            Some(by) => {
                request.replace
                    && entry.by.as_deref() == Some(by)
                    && entry.listed.verdict() == Some(listed)
            }
            None => {
                entry.listed.verdict() != Some(listed)
                    && put.keys().any(|prefix| prefix.contains(at))
            }
        };
        // Most changes concern single sources, which contain nothing, and a program that does not
        // replace its entries removes none. Both cases avoid a walk over a million entries.
        let nothing_inside = by.is_none() && put.keys().all(Selector::is_source);
        if nothing_inside || by.is_some() && !request.replace {
            return BTreeSet::new();
        }
        others.filter(goes).map(|(at, _)| *at).collect()
    }

    /// Decides whether a program may replace the existing entry by a new one.
    fn leave(&self, selector: &Selector, new: ListEntry, by: &str, now: Ticks) -> Leave {
        let in_force =
            |at: &Selector| self.entries.get(at).filter(|it| it.listed.at(now).is_some());
        let against = |it: &&Entry| it.listed.at(now).is_some_and(|it| Some(it) != new.verdict());
        if let Some(old) = self.file.get(selector).filter(against) {
            return Leave::Refused(format!("it is {}", old.reported()));
        }
        let (wanted, ends) = (new.verdict(), new.expires());
        let lasts =
            |old: &Entry| old.listed.expires().is_none_or(|old| ends.is_some_and(|new| old >= new));
        if let Some(old) = in_force(selector) {
            let same = old.listed.verdict() == wanted;
            let theirs = old.by.as_deref() != Some(by);
            if theirs && same && lasts(old) {
                return Leave::Stays;
            }
            if theirs && (old.by.is_none() || !same && old.listed.verdict() != Some(Listed::Deny)) {
                return Leave::Refused(format!("it is {}", old.reported()));
            }
        }
        let around = selector.wider().find_map(|at| Some((at, self.deciding(&at, now)?)));
        match around {
            Some((at, old))
                if old.listed.verdict() != wanted
                    && old.by.as_deref() != Some(by)
                    && (old.is_of_people() || old.listed.verdict() != Some(Listed::Deny)) =>
            {
                Leave::Refused(format!("it is inside {at}, which is {}", old.reported()))
            }
            _ => Leave::Take,
        }
    }

    /// Splits sources to be removed into those whose entries the author may remove, and the others
    /// with the reason against it.
    pub(crate) fn own(
        &self,
        selectors: &BTreeSet<Selector>,
        by: Option<&str>,
    ) -> (BTreeSet<Selector>, Vec<Skipped>) {
        let mut skipped = Wanted::default();
        let mut own = selectors.clone();
        own.retain(|selector| {
            let Some(entry) = self.file.get(selector).filter(|_| self.is_of_rule_file(selector))
            else {
                return true;
            };
            // A program whose entry has already ended has what it wants.
            if by.is_none() {
                let why = format!("it is {}: take it out of that", entry.reported());
                skipped.skip(*selector, why);
            }
            by.is_some()
        });
        if let Some(by) = by {
            own.retain(|selector| match self.entries.get(selector) {
                Some(entry) if entry.by.as_deref() != Some(by) => {
                    skipped.skip(*selector, format!("it is {}", entry.reported()));
                    false
                }
                _ => true,
            });
        }
        (own, skipped.skipped)
    }
}

impl Wanted {
    fn skip(&mut self, selector: Selector, why: String) {
        self.skipped.push(Skipped { source: selector.to_string(), why });
    }
}
