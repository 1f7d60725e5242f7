//! Allow and deny lists: what is on them, until when, and who may not be denied.
//!
//! While maps are pinned they are the truth, so a restart adopts the lists with everything else. The
//! file in the state directory brings them back after a reboot.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipnet::IpNet;
use limiter_common::time::Ticks;
use limiter_common::wire::{ListEntry, Listed};
use serde::{Deserialize, Serialize};

use super::datapath::{Datapath, Fault};
use super::error::ServiceError;
use crate::control::api::lists::{ListName, ListedSource, Lists, ListsChanged, SetList, UnsetList};
use crate::rules::{Selector, source_text};

/// Entries that the kernel's maps hold (limiter-ebpf, maps.rs): single sources, and prefixes.
const CAPACITY: [usize; 2] = [1 << 20, 1 << 16];

/// The lists, as the daemon knows them.
#[derive(Debug, Default)]
pub(super) struct Book {
    entries: BTreeMap<Selector, ListEntry>,
    /// Single sources, and prefixes: what [`CAPACITY`] bounds.
    sizes: [usize; 2],
    /// Entries on the two lists.
    totals: ListsChanged,
    /// Nothing expires before this, so that a million entries are not walked every second.
    first_expiry: Option<Ticks>,
    /// Whether the file is older than this.
    dirty: bool,
}

/// The file of the lists.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    entries: Vec<SavedEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedEntry {
    source: String,
    list: ListName,
    /// Seconds since 1970; none for never.
    until: Option<u64>,
    /// Seconds that were left when it was saved. No more are given: the wall clock may not be set yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left: Option<u64>,
}

impl Book {
    /// Takes over what the maps hold, or, when they are new, what the file says; then makes the
    /// management prefixes safe. Says what of it is not in force.
    pub(super) fn open(
        datapath: &mut dyn Datapath,
        saved: Option<&str>,
        management: &[Selector],
    ) -> Result<(Self, Vec<String>), ServiceError> {
        let mut warnings = Vec::new();
        let mut book = Self::default();
        let found = datapath.listed().map_err(ServiceError::Datapath)?;
        let is_management = |entry: &ListEntry| entry.verdict() == Some(Listed::Management);
        // Adopted maps are the truth also without an entry: the file may be older, as on a full disk.
        if datapath.is_new() && found.iter().all(|(_, entry)| is_management(entry)) {
            for (selector, entry) in read(saved, datapath.now(), datapath.wall(), &mut warnings) {
                book.put(datapath, selector, entry)?;
            }
        }
        let mut managed_before = Vec::new();
        for (selector, entry) in found {
            if is_management(&entry) {
                managed_before.push(selector);
            } else {
                book.keep(selector, entry);
            }
        }
        for prefix in management {
            let inside = book.entries.iter().filter(|(selector, entry)| {
                entry.verdict() == Some(Listed::Deny) && prefix.contains(selector)
            });
            for selector in inside.map(|(selector, _)| *selector).collect::<Vec<_>>() {
                warnings.push(format!(
                    "{selector} is no longer denied: it is inside the management prefix {prefix}"
                ));
                book.remove(datapath, &selector)?;
            }
            if !book.entries.contains_key(prefix) {
                let entry = ListEntry::new(Listed::Management, None);
                datapath.list(prefix, entry).map_err(ServiceError::Datapath)?;
            }
        }
        // Last: nobody is without protection in between, nor after a start that fails here.
        for selector in managed_before.iter().filter(|selector| !management.contains(selector)) {
            datapath.unlist(selector).map_err(ServiceError::Datapath)?;
        }
        Ok((book, warnings))
    }

    /// Puts sources on a list, all or none: everything is checked first.
    pub(super) fn set(
        &mut self,
        datapath: &mut dyn Datapath,
        request: &SetList,
        managed: impl Fn(&Selector) -> Option<Selector>,
    ) -> Result<ListsChanged, ServiceError> {
        let verdict = match request.list {
            ListName::Allow => Listed::Allow,
            ListName::Deny => Listed::Deny,
        };
        let mut selectors = BTreeSet::new();
        for source in &request.sources {
            let selector = source_text::parse(source)?;
            if verdict == Listed::Deny
                && let Some(prefix) = managed(&selector)
            {
                return Err(ServiceError::Management { selector, prefix });
            }
            selectors.insert(selector);
        }
        self.check_room(&selectors)?;
        let expires = match request.seconds {
            Some(0) => return Err(ServiceError::NoTime),
            Some(seconds) => Some(after(datapath.now(), Duration::from_secs(seconds))),
            None => None,
        };
        let mut changed = Vec::new();
        for selector in selectors {
            let before = self.entries.get(&selector).copied();
            // A management prefix may be allowed as well: it stays safe either way.
            if let Err(error) = self.put(datapath, selector, ListEntry::new(verdict, expires)) {
                self.take_back(datapath, selector, before, &managed);
                for (selector, before) in changed {
                    self.take_back(datapath, selector, before, &managed);
                }
                return Err(error);
            }
            changed.push((selector, before));
        }
        Ok(self.totals)
    }

    /// Undoes a change, as far as the kernel lets.
    fn take_back(
        &mut self,
        datapath: &mut dyn Datapath,
        selector: Selector,
        before: Option<ListEntry>,
        managed: impl Fn(&Selector) -> Option<Selector>,
    ) {
        let undone = match before {
            Some(entry) => self.put(datapath, selector, entry),
            None => {
                self.remove(datapath, &selector).and_then(|()| protect(datapath, selector, managed))
            }
        };
        if let Err(error) = undone {
            tracing::error!(%error, "{selector} is not on the lists as before the change that failed");
        }
    }

    /// Takes sources off their lists, all or none; those that are on none are counted.
    pub(super) fn unset(
        &mut self,
        datapath: &mut dyn Datapath,
        selectors: &BTreeSet<Selector>,
        managed: impl Fn(&Selector) -> Option<Selector>,
    ) -> Result<ListsChanged, ServiceError> {
        let mut changed = Vec::new();
        for selector in selectors {
            let Some(before) = self.entries.get(selector).copied() else { continue };
            changed.push((*selector, Some(before)));
            let removed = self.remove(datapath, selector);
            if let Err(error) = removed.and_then(|()| protect(datapath, *selector, &managed)) {
                for (selector, before) in changed {
                    self.take_back(datapath, selector, before, &managed);
                }
                return Err(error);
            }
        }
        Ok(ListsChanged { not_listed: selectors.len() - changed.len(), ..self.totals })
    }

    /// Removes what has expired. The program has ignored it since then.
    pub(super) fn expire(
        &mut self,
        datapath: &mut dyn Datapath,
        managed: impl Fn(&Selector) -> Option<Selector>,
    ) -> Result<(), ServiceError> {
        let now = datapath.now();
        if self.first_expiry.is_none_or(|first| first > now) {
            return Ok(());
        }
        let expired = self.entries.iter().filter(|(_, entry)| entry.at(now).is_none());
        for selector in expired.map(|(selector, _)| *selector).collect::<Vec<_>>() {
            self.remove(datapath, &selector)?;
            protect(datapath, selector, &managed)?;
        }
        self.first_expiry = self.entries.values().filter_map(ListEntry::expires).min();
        Ok(())
    }

    /// All entries that are in force.
    pub(super) fn view(&self, now: Ticks) -> Lists {
        let entries = self
            .entries
            .iter()
            .filter_map(|(selector, entry)| {
                Some(ListedSource {
                    source: selector.to_string(),
                    list: name(entry.at(now)?),
                    expires_in_seconds: entry
                        .expires()
                        .map(|expires| expires.since(now).as_nanos().div_ceil(1_000_000_000)),
                })
            })
            .collect();
        Lists { entries }
    }

    /// Entries on the two lists.
    pub(super) const fn totals(&self) -> ListsChanged {
        self.totals
    }

    /// What the program does to a source.
    pub(super) fn of(&self, source: &Selector, now: Ticks) -> Option<ListName> {
        self.entry(source, now).and_then(|entry| entry.at(now)).map(name)
    }

    /// The entry that the program finds for a source: its own, else that of the longest prefix, if it
    /// has not expired. By look-ups, because a proxy may ask for each of its requests.
    pub(super) fn entry(&self, source: &Selector, now: Ticks) -> Option<ListEntry> {
        let in_force = |entry: &&ListEntry| entry.at(now).is_some();
        let own = self.entries.get(source).filter(in_force);
        let longest = || {
            let mut wider = wider(source);
            wider.find_map(|prefix| self.entries.get(&prefix)).filter(in_force)
        };
        own.or_else(longest).copied()
    }

    /// Whether a source is allowed, and for good.
    pub(super) fn allows_for_good(&self, source: &Selector, now: Ticks) -> bool {
        let longest = || {
            let prefixes = self.entries.iter().filter(|(at, _)| at.contains(source));
            prefixes.max_by_key(|(at, _)| at.prefix_len()).map(|(_, entry)| entry)
        };
        let entry = self.entries.get(source).or_else(longest);
        entry.is_some_and(|entry| entry.expires().is_none() && entry.at(now) == Some(Listed::Allow))
    }

    /// The text for the file, if it is due; [`Book::saved`] says that it was written.
    pub(super) fn to_save(
        &self,
        now: Ticks,
        wall: Duration,
    ) -> Option<Result<String, serde_json::Error>> {
        if !self.dirty {
            return None;
        }
        let entries = self
            .entries
            .iter()
            .filter_map(|(selector, entry)| {
                let list = name(entry.at(now)?);
                let left = entry.expires().map(|at| Duration::from_nanos(at.since(now).as_nanos()));
                let until = left.map(|left| wall.saturating_add(left).as_secs());
                let left = left.map(|left| left.as_secs() + u64::from(left.subsec_nanos() > 0));
                Some(SavedEntry { source: selector.to_string(), list, until, left })
            })
            .collect();
        Some(serde_json::to_string(&Saved { entries }))
    }

    /// The file is as new as this.
    pub(super) fn saved(&mut self) {
        self.dirty = false;
    }

    fn put(
        &mut self,
        datapath: &mut dyn Datapath,
        selector: Selector,
        entry: ListEntry,
    ) -> Result<(), ServiceError> {
        datapath.list(&selector, entry).map_err(ServiceError::Datapath)?;
        self.keep(selector, entry);
        self.dirty = true;
        Ok(())
    }

    fn remove(
        &mut self,
        datapath: &mut dyn Datapath,
        selector: &Selector,
    ) -> Result<(), ServiceError> {
        datapath.unlist(selector).map_err(ServiceError::Datapath)?;
        self.forget(selector);
        self.dirty = true;
        Ok(())
    }

    fn keep(&mut self, selector: Selector, entry: ListEntry) {
        self.forget(&selector);
        *self.size(&selector) += 1;
        *self.total(&entry) += 1;
        if let Some(expires) = entry.expires() {
            self.first_expiry = Some(self.first_expiry.map_or(expires, |first| first.min(expires)));
        }
        self.entries.insert(selector, entry);
    }

    fn forget(&mut self, selector: &Selector) {
        if let Some(entry) = self.entries.remove(selector) {
            *self.size(selector) -= 1;
            *self.total(&entry) -= 1;
        }
    }

    fn size(&mut self, selector: &Selector) -> &mut usize {
        let [sources, prefixes] = &mut self.sizes;
        if selector.is_source() { sources } else { prefixes }
    }

    fn total(&mut self, entry: &ListEntry) -> &mut usize {
        match entry.verdict() {
            Some(Listed::Deny) => &mut self.totals.denied,
            _ => &mut self.totals.allowed,
        }
    }

    fn check_room(&self, wanted: &BTreeSet<Selector>) -> Result<(), ServiceError> {
        let mut sizes = self.sizes;
        for selector in wanted.iter().filter(|selector| !self.entries.contains_key(selector)) {
            let [sources, prefixes] = &mut sizes;
            *(if selector.is_source() { sources } else { prefixes }) += 1;
        }
        let what = ["single sources", "prefixes"];
        for ((size, capacity), what) in sizes.into_iter().zip(CAPACITY).zip(what) {
            if size > capacity {
                return Err(ServiceError::ListsFull { what, capacity });
            }
        }
        Ok(())
    }
}

/// Who is to be taken off.
pub(super) fn named(request: &UnsetList) -> Result<BTreeSet<Selector>, ServiceError> {
    let texts: Vec<&str> = match (&request.source, &request.sources) {
        (Some(source), None) => vec![source],
        (None, Some(sources)) => sources.split(',').collect(),
        (None, None) | (Some(_), Some(_)) => {
            let problem = "name one, or several with sources=A,B".to_owned();
            return Err(ServiceError::Question { word: "source", problem });
        }
    };
    Ok(texts.into_iter().map(source_text::parse).collect::<Result<_, _>>()?)
}

/// Makes a management prefix safe again that was on a list by itself.
fn protect(
    datapath: &mut dyn Datapath,
    selector: Selector,
    managed: impl Fn(&Selector) -> Option<Selector>,
) -> Result<(), ServiceError> {
    if managed(&selector) == Some(selector) {
        let entry = ListEntry::new(Listed::Management, None);
        datapath.list(&selector, entry).map_err(ServiceError::Datapath)?;
    }
    Ok(())
}

/// The prefixes around a source, the longest first.
fn wider(source: &Selector) -> impl Iterator<Item = Selector> {
    let net = match source {
        Selector::Every => None,
        Selector::Prefix(net) => Some(*net),
    };
    let supernets = std::iter::successors(net.and_then(|net| net.supernet()), IpNet::supernet);
    supernets.map(Selector::Prefix).chain([Selector::Every])
}

const fn name(listed: Listed) -> ListName {
    match listed {
        Listed::Deny => ListName::Deny,
        Listed::Allow | Listed::Management => ListName::Allow,
    }
}

fn after(now: Ticks, time: Duration) -> Ticks {
    now.plus(Ticks::from_nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
}

/// The entries of the file that have not expired. A file that cannot be read loses the lists, not
/// the machine: it is a warning.
fn read(
    saved: Option<&str>,
    now: Ticks,
    wall: Duration,
    warnings: &mut Vec<String>,
) -> Vec<(Selector, ListEntry)> {
    let Some(text) = saved else {
        return Vec::new();
    };
    let saved: Saved = match serde_json::from_str(text) {
        Ok(saved) => saved,
        Err(error) => {
            warnings.push(format!("the saved lists are not in force: lists.json: {error}"));
            return Vec::new();
        }
    };
    let mut entries = Vec::with_capacity(saved.entries.len());
    for SavedEntry { source, list, until, left } in saved.entries {
        let selector = match source_text::parse(&source) {
            Ok(selector) => selector,
            Err(error) => {
                warnings.push(format!("a saved list entry is not in force: lists.json: {error}"));
                continue;
            }
        };
        let most = Duration::from_secs(left.unwrap_or(u64::MAX));
        let left = until.map(|until| Duration::from_secs(until).saturating_sub(wall).min(most));
        if left.is_some_and(|left| left.is_zero()) {
            continue;
        }
        let verdict = match list {
            ListName::Allow => Listed::Allow,
            ListName::Deny => Listed::Deny,
        };
        entries.push((selector, ListEntry::new(verdict, left.map(|left| after(now, left)))));
    }
    entries
}

impl From<Fault> for ServiceError {
    fn from(fault: Fault) -> Self {
        Self::Datapath(fault)
    }
}
