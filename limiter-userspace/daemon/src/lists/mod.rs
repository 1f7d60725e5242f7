//! Allow and deny lists: their entries, the ends of these, and the sources that may not be denied.
//!
//! While maps are pinned they are authoritative, so a restart adopts the lists with everything
//! else. The files in the state directory restore them after a reboot.

mod asked;
mod authors;
pub(crate) mod bans;
mod entries;
mod kept;
mod laid;
mod maps;
mod reason;
pub(crate) mod request_bans;
mod saved;
mod standing;
mod store;

use std::collections::BTreeSet;
use std::time::Duration;

use limiter_api::lists::{ListName, ListsChanged, RULE_FILE, UnsetList};
use limiter_common::time::Ticks;
use limiter_common::wire::{ListEntry, Listed};
use limiter_datapath::Datapath;
use limiter_rules::{Selector, source_text};

use super::disk::state_dir::{Damage, StateDir, StateError};
use super::error::ServiceError;
use entries::{Entries, Entry};
use saved::Reasons;
use store::Store;

pub(super) use authors::{CLUSTER, Wanted, author};
pub(super) use entries::name;
pub(super) use laid::{Laid, over};
pub(super) use standing::{Changes, Standing, UNCHANGED};

/// Number of removed entries from which on giving back memory is worth the effort.
const MANY: usize = 1_000;

/// The lists as the daemon knows them.
#[derive(Debug, Default)]
pub(super) struct ListStore {
    /// Entries of people, programs and other nodes.
    entries: Entries,
    /// Entries of the rule files.
    file: Entries,
    /// Both clocks at the moment when the entries of the rule files came into force.
    laid_at: (Ticks, Duration),
    /// Numbers of single sources and of prefixes with an entry, which [`ROOM`] bounds.
    sizes: [usize; 2],
    /// Entries on the two lists.
    totals: ListsChanged,
    /// Time before which nothing expires, so that a million entries are not walked every second.
    first_expiry: Option<Ticks>,
    /// The entries on disk, and the changes not written yet.
    store: Store,
    /// Removed entries since memory was last given back, up to [`MANY`].
    gone: usize,
    /// Addresses covered by entries of other nodes: allowed and denied, IPv4 and IPv6.
    of_others: [[u128; 2]; 2],
}

impl ListStore {
    /// Takes over the entries of the maps or, when the maps are new, of the files; then makes the
    /// management prefixes safe. Returns the lists, warnings about entries not in force, and the
    /// damaged files.
    pub(super) fn open(
        datapath: &mut dyn Datapath,
        state: &StateDir,
        management: &[Selector],
    ) -> Result<(Self, Vec<String>, Option<Damage>), ServiceError> {
        let (mut warnings, mut damage) = (Vec::new(), None);
        let mut list_store = Self::default();
        let found = datapath.list_entries()?;
        let is_management = |entry: &ListEntry| entry.verdict() == Some(Listed::Management);
        // Adopted maps are authoritative even without an entry: the files may be older, for example
        // on a full disk.
        if datapath.is_new() && found.iter().all(|(_, entry)| is_management(entry)) {
            let (now, wall) = (datapath.now(), datapath.wall());
            for (selector, entry) in saved::read(state, now, wall, &mut damage)? {
                list_store.put(datapath, selector, entry, &|_| None)?;
            }
        }
        // The maps do not hold reasons.
        let mut reasons =
            if found.is_empty() { Reasons::new() } else { saved::reasons(state, &mut damage) };
        // Nor do they hold an entry that an entry of a rule file overrides.
        let mut beneath = if found.iter().any(|(_, entry)| entry.is_of_rule_file()) {
            saved::read(state, datapath.now(), datapath.wall(), &mut damage)?
        } else {
            Entries::new()
        };
        let mut managed_before = Vec::new();
        for (selector, entry) in found {
            if is_management(&entry) {
                managed_before.push(selector);
            } else if entry.is_of_rule_file() {
                let by = Some(RULE_FILE.into());
                list_store.keep_file(selector, Some(Entry { listed: entry, reason: None, by }));
                if let Some(entry) = beneath.remove(&selector) {
                    list_store.keep(selector, entry);
                }
            } else {
                let (reason, by) = reasons
                    .remove(&selector)
                    .filter(|(list, ..)| entry.verdict().map(name) == Some(*list))
                    .map_or((None, None), |(_, reason, by)| (reason, by));
                list_store.keep(selector, Entry { listed: entry, reason, by });
            }
        }
        for prefix in management {
            let inside = list_store.entries.iter().filter(|(selector, entry)| {
                entry.listed.verdict() == Some(Listed::Deny) && prefix.contains(selector)
            });
            for selector in inside.map(|(selector, _)| *selector).collect::<Vec<_>>() {
                warnings.push(format!(
                    "{selector} is no longer denied: it is inside the management prefix {prefix}"
                ));
                list_store.remove(datapath, &selector, &|_| None)?;
            }
            if !list_store.is_listed(prefix) {
                let entry = ListEntry::new(Listed::Management, None);
                datapath.list(prefix, entry)?;
            }
        }
        // Removed last, so that no prefix lacks protection in between, nor after a start that fails
        // here.
        for selector in managed_before.iter().filter(|selector| !management.contains(selector)) {
            datapath.unlist(selector)?;
        }
        list_store.store = Store::open(state, &list_store.entries, datapath.now(), datapath.wall());
        Ok((list_store, warnings, damage))
    }

    /// Makes a prepared change, completely or not at all.
    pub(super) fn make(
        &mut self,
        datapath: &mut dyn Datapath,
        Wanted { put, gone, stay, skipped }: Wanted,
        managed: impl Fn(&Selector) -> Option<Selector>,
    ) -> Result<ListsChanged, ServiceError> {
        let (mut changed, mut kept) = (Vec::new(), stay);
        let (off, named) = (gone.len(), put.len());
        let steps = gone.into_iter().map(|selector| (selector, None));
        // Removals come first, to make room for additions.
        for (selector, entry) in steps.chain(put.into_iter().map(|(at, entry)| (at, Some(entry)))) {
            let before = self.entries.get(&selector).cloned();
            let done = match entry {
                // A management prefix may be on the allow list as well; it stays safe either way.
                Some(entry) => {
                    let same = |before: &Entry| before.listed.verdict() == entry.listed.verdict();
                    kept += usize::from(before.as_ref().is_some_and(same));
                    self.put(datapath, selector, entry, &managed)
                }
                None => self.remove(datapath, &selector, &managed),
            };
            changed.push((selector, before));
            if let Err(error) = done {
                for (selector, before) in changed.into_iter().rev() {
                    self.take_back(datapath, selector, before, &managed);
                }
                return Err(error);
            }
        }
        let new = named + stay - kept;
        Ok(ListsChanged { new, kept, off, skipped, ..self.totals.clone() })
    }

    /// Undoes a change, as far as the kernel allows.
    fn take_back(
        &mut self,
        datapath: &mut dyn Datapath,
        selector: Selector,
        before: Option<Entry>,
        managed: impl Fn(&Selector) -> Option<Selector>,
    ) {
        let undone = match before {
            Some(entry) => self.put(datapath, selector, entry, &managed),
            None => self.remove(datapath, &selector, &managed),
        };
        if let Err(error) = undone {
            tracing::error!(%error, "{selector} is not on the lists as before the change that failed");
        }
    }

    /// Removes sources from their lists, all or none; sources on no list are counted.
    pub(super) fn unset(
        &mut self,
        datapath: &mut dyn Datapath,
        selectors: &BTreeSet<Selector>,
        managed: impl Fn(&Selector) -> Option<Selector>,
    ) -> Result<ListsChanged, ServiceError> {
        let mut changed = Vec::new();
        for selector in selectors {
            let Some(before) = self.entries.get(selector).cloned() else { continue };
            changed.push((*selector, Some(before)));
            if let Err(error) = self.remove(datapath, selector, &managed) {
                for (selector, before) in changed {
                    self.take_back(datapath, selector, before, &managed);
                }
                return Err(error);
            }
        }
        Ok(ListsChanged { not_listed: selectors.len() - changed.len(), ..self.totals.clone() })
    }

    /// Removes expired entries. The program has ignored them since they expired.
    pub(super) fn expire(
        &mut self,
        datapath: &mut dyn Datapath,
        managed: impl Fn(&Selector) -> Option<Selector>,
    ) -> Result<(), ServiceError> {
        let now = datapath.now();
        if self.first_expiry.is_none_or(|first| first > now) {
            return Ok(());
        }
        let expired = self.entries.iter().filter(|(_, entry)| entry.listed.at(now).is_none());
        for selector in expired.map(|(selector, _)| *selector).collect::<Vec<_>>() {
            // An expired entry does not decide.
            self.settle(datapath, &selector, &managed)?;
            self.settle_inside(datapath, &selector, &managed)?;
            self.forget(&selector);
            self.store.note_expired();
        }
        let expired = self.file.iter().filter(|(_, entry)| entry.listed.at(now).is_none());
        for selector in expired.map(|(selector, _)| *selector).collect::<Vec<_>>() {
            self.settle(datapath, &selector, &managed)?;
            self.settle_inside(datapath, &selector, &managed)?;
            self.keep_file(selector, None);
        }
        let all = self.entries.values().chain(self.file.values());
        self.first_expiry = all.filter_map(|entry| entry.listed.expires()).min();
        Ok(())
    }

    /// Stores a change before it is answered; returns `None` if there is nothing to store. After a
    /// failure, [`ListStore::keep_stored`] tries again.
    pub(super) fn store(
        &mut self,
        state: &StateDir,
        datapath: &dyn Datapath,
    ) -> Option<Result<(), StateError>> {
        self.store.store(&self.entries, state, (datapath.now(), datapath.wall()))
    }

    /// Stores all changes not on disk yet.
    pub(super) fn keep_stored(
        &mut self,
        state: &StateDir,
        datapath: &dyn Datapath,
    ) -> Result<(), StateError> {
        self.store.keep(&self.entries, state, (datapath.now(), datapath.wall()))
    }

    /// Returns true if so many entries were removed since the last call that giving back memory is
    /// worth it.
    pub(super) fn many_went(&mut self) -> bool {
        let many = self.gone >= MANY;
        if many {
            self.gone = 0;
        }
        many
    }
}

/// Sources to be removed.
pub(super) fn named(request: &UnsetList) -> Result<BTreeSet<Selector>, ServiceError> {
    let texts: Vec<&str> = match (&request.source, &request.sources) {
        (Some(source), None) => vec![source],
        (None, Some(sources)) => sources.split(',').collect(),
        (None, None) | (Some(_), Some(_)) => {
            let problem = "name one, or several with sources=A,B".to_owned();
            return Err(ServiceError::Word { word: "source", problem });
        }
    };
    Ok(texts.into_iter().map(source_text::parse).collect::<Result<_, _>>()?)
}

const fn verdict(list: ListName) -> Listed {
    match list {
        ListName::Allow => Listed::Allow,
        ListName::Deny => Listed::Deny,
    }
}
