//! Allow and deny lists: what is on them, until when, and who may not be denied.
//!
//! While maps are pinned they are the truth, so a restart adopts the lists with everything else.
//! The files in the state directory bring them back after a reboot.

mod authors;
mod entries;
mod reason;
mod saved;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use ipnet::IpNet;
use limiter_common::time::Ticks;
use limiter_common::wire::{ListEntry, Listed};
use limiter_datapath::Datapath;
use limiter_rules::{Selector, source_text};
use limiter_text::plain::clean;

use super::error::ServiceError;
use super::state_dir::{Damage, StateDir, StateError};
use crate::api::lists::{ListName, ListedSource, ListsChanged, UnsetList};
use entries::{Entries, Entry};
use saved::Reasons;
use store::Store;

pub(super) use authors::{CLUSTER, Wanted, author};
pub(super) use entries::name;

/// Entries that the kernel's maps hold (limiter-ebpf, maps.rs): single sources, and prefixes.
const CAPACITY: [usize; 2] = [1 << 20, 1 << 16];

/// Widest entries of other nodes that there may be on a list at once.
const OTHERS: u128 = 16;

/// Entries that went since memory was given back last, from which on that is worth it.
const MANY: usize = 1_000;

/// The lists, as the daemon knows them.
#[derive(Debug, Default)]
pub(super) struct Book {
    entries: Entries,
    /// Single sources, and prefixes: what [`CAPACITY`] bounds.
    sizes: [usize; 2],
    /// Entries on the two lists.
    totals: ListsChanged,
    /// Nothing expires before this, so that a million entries are not walked every second.
    first_expiry: Option<Ticks>,
    /// The entries on disk, and those that are not yet there.
    store: Store,
    /// Entries that went, up to [`MANY`].
    gone: usize,
    /// Addresses that entries of other nodes have in them: allowed and denied, IPv4 and IPv6.
    of_others: [[u128; 2]; 2],
}

/// Entries that are to be otherwise; `None` for one that is to go.
pub(super) type Changes = BTreeMap<Selector, Option<ListEntry>>;

/// Effect of the lists on a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The source is allowed, for good.
    Safe,
    /// The source is denied, or will be once an entry that allows it has ended: by this entry.
    Denied(Selector),
    /// The source is left to the rules, or will be.
    Open,
}

impl Book {
    /// Takes over what the maps hold, or, when they are new, what the files say; then makes the
    /// management prefixes safe. Says what of it is not in force, and which files are damaged.
    pub(super) fn open(
        datapath: &mut dyn Datapath,
        state: &StateDir,
        management: &[Selector],
    ) -> Result<(Self, Vec<String>, Option<Damage>), ServiceError> {
        let (mut warnings, mut damage) = (Vec::new(), None);
        let mut book = Self::default();
        let found = datapath.list_entries()?;
        let is_management = |entry: &ListEntry| entry.verdict() == Some(Listed::Management);
        // Adopted maps are the truth also without an entry: the files may be older, as on a full
        // disk.
        if datapath.is_new() && found.iter().all(|(_, entry)| is_management(entry)) {
            let (now, wall) = (datapath.now(), datapath.wall());
            for (selector, entry) in saved::read(state, now, wall, &mut damage)? {
                book.put(datapath, selector, entry)?;
            }
        }
        // The maps have no reasons.
        let mut reasons =
            if found.is_empty() { Reasons::new() } else { saved::reasons(state, &mut damage) };
        let mut managed_before = Vec::new();
        for (selector, entry) in found {
            if is_management(&entry) {
                managed_before.push(selector);
            } else {
                let (reason, by) = reasons
                    .remove(&selector)
                    .filter(|(list, ..)| entry.verdict().map(name) == Some(*list))
                    .map_or((None, None), |(_, reason, by)| (reason, by));
                book.keep(selector, Entry { listed: entry, reason, by });
            }
        }
        for prefix in management {
            let inside = book.entries.iter().filter(|(selector, entry)| {
                entry.listed.verdict() == Some(Listed::Deny) && prefix.contains(selector)
            });
            for selector in inside.map(|(selector, _)| *selector).collect::<Vec<_>>() {
                warnings.push(format!(
                    "{selector} is no longer denied: it is inside the management prefix {prefix}"
                ));
                book.remove(datapath, &selector)?;
            }
            if !book.entries.contains_key(prefix) {
                let entry = ListEntry::new(Listed::Management, None);
                datapath.list(prefix, entry)?;
            }
        }
        // Last: nobody is without protection in between, nor after a start that fails here.
        for selector in managed_before.iter().filter(|selector| !management.contains(selector)) {
            datapath.unlist(selector)?;
        }
        book.store = Store::open(state, &book.entries, datapath.now(), datapath.wall());
        Ok((book, warnings, damage))
    }

    /// Makes a change that was worked out, whole or not at all.
    pub(super) fn make(
        &mut self,
        datapath: &mut dyn Datapath,
        Wanted { put, gone, stay, skipped }: Wanted,
        managed: impl Fn(&Selector) -> Option<Selector>,
    ) -> Result<ListsChanged, ServiceError> {
        let (mut changed, mut kept) = (Vec::new(), stay);
        let (off, named) = (gone.len(), put.len());
        let steps = gone.into_iter().map(|selector| (selector, None));
        // What goes makes room for what comes.
        for (selector, entry) in steps.chain(put.into_iter().map(|(at, entry)| (at, Some(entry)))) {
            let before = self.entries.get(&selector).cloned();
            let done = match entry {
                // A management prefix may be allowed as well: it stays safe either way.
                Some(entry) => {
                    let same = |before: &Entry| before.listed.verdict() == entry.listed.verdict();
                    kept += usize::from(before.as_ref().is_some_and(same));
                    self.put(datapath, selector, entry)
                }
                None => self
                    .remove(datapath, &selector)
                    .and_then(|()| protect(datapath, selector, &managed)),
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

    /// Undoes a change, as far as the kernel lets.
    fn take_back(
        &mut self,
        datapath: &mut dyn Datapath,
        selector: Selector,
        before: Option<Entry>,
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
            let Some(before) = self.entries.get(selector).cloned() else { continue };
            changed.push((*selector, Some(before)));
            let removed = self.remove(datapath, selector);
            if let Err(error) = removed.and_then(|()| protect(datapath, *selector, &managed)) {
                for (selector, before) in changed {
                    self.take_back(datapath, selector, before, &managed);
                }
                return Err(error);
            }
        }
        Ok(ListsChanged { not_listed: selectors.len() - changed.len(), ..self.totals.clone() })
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
        let expired = self.entries.iter().filter(|(_, entry)| entry.listed.at(now).is_none());
        for selector in expired.map(|(selector, _)| *selector).collect::<Vec<_>>() {
            datapath.unlist(&selector)?;
            self.forget(&selector);
            self.store.note_expired();
            protect(datapath, selector, &managed)?;
        }
        self.first_expiry = self.entries.values().filter_map(|entry| entry.listed.expires()).min();
        Ok(())
    }

    /// The entries after one, in the order of sources: as they are told, and none for those that
    /// have expired.
    pub(super) fn after(
        &self,
        last: Option<&Selector>,
        now: Ticks,
    ) -> impl Iterator<Item = (Selector, Option<ListedSource>)> {
        let from = last.map_or(Bound::Unbounded, |last| Bound::Excluded(*last));
        self.entries.range((from, Bound::Unbounded)).map(move |(selector, entry)| {
            let told = entry.listed.at(now).map(|listed| ListedSource {
                source: selector.to_string(),
                list: name(listed),
                expires_in_seconds: entry
                    .listed
                    .expires()
                    .map(|expires| expires.since(now).as_nanos().div_ceil(1_000_000_000)),
                reason: entry.reason.as_deref().map(str::to_owned),
                by: entry.by.as_deref().map(str::to_owned),
                not_saved: self.store.lacks(selector),
            });
            (*selector, told)
        })
    }

    /// Entries on the two lists.
    pub(super) fn totals(&self) -> ListsChanged {
        self.totals.clone()
    }

    /// How a source stands on the lists now, in words: by its own entry, else by the one around it.
    pub(super) fn told(&self, source: &Selector, now: Ticks) -> String {
        for selector in std::iter::once(*source).chain(source.wider()) {
            let entry = self.entries.get(&selector);
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
                Some(end) => format!("for {} s", end.since(now).as_nanos().div_ceil(1_000_000_000)),
                None if self.store.lacks(&selector) => "until a reboot, not saved,".to_owned(),
                None => "for ever".to_owned(),
            };
            let by = if selector == *source { String::new() } else { format!(" by {selector}") };
            let why = entry.reason.as_deref().map(|reason| format!(" ({})", clean(reason)));
            return format!("{what} {time}{by}{}", why.unwrap_or_default());
        }
        "on no list".to_owned()
    }

    /// Why changes are not on disk; none if they are.
    pub(super) fn not_saved(&self) -> Option<&str> {
        self.store.not_saved()
    }

    /// True if the entry that decides on a source is not on disk, and could not be.
    pub(super) fn lacks(&self, source: &Selector, now: Ticks) -> bool {
        let mut at = std::iter::once(*source).chain(source.wider());
        let decides =
            at.find(|at| self.entries.get(at).is_some_and(|it| it.listed.at(now).is_some()));
        decides.is_some_and(|at| self.store.lacks(&at))
    }

    /// The list that decides on a source now; none if the rules do.
    pub(super) fn of(&self, source: &Selector, now: Ticks) -> Option<ListName> {
        self.entry(source, now).and_then(|entry| entry.at(now)).map(name)
    }

    /// The reason that was given for the entry that decides on a source now.
    pub(super) fn reason_of(&self, source: &Selector, now: Ticks) -> Option<&str> {
        self.found(source, now).and_then(|entry| entry.reason.as_deref())
    }

    /// The entry that the program finds for a source: its own, else that of the longest prefix, if
    /// it has not expired. By look-ups, because a proxy may ask for each of its requests.
    pub(super) fn entry(&self, source: &Selector, now: Ticks) -> Option<ListEntry> {
        self.found(source, now).map(|entry| entry.listed)
    }

    fn found(&self, source: &Selector, now: Ticks) -> Option<&Entry> {
        let in_force = |entry: &&Entry| entry.listed.at(now).is_some();
        let own = self.entries.get(source).filter(in_force);
        let longest = || {
            let mut wider = source.wider();
            wider.find_map(|prefix| self.entries.get(&prefix)).filter(in_force)
        };
        own.or_else(longest)
    }

    /// Effect of the lists on a source, now and once the entries that end have ended, if `changes`
    /// were made.
    pub(super) fn standing(&self, source: &Selector, now: Ticks, changes: &Changes) -> Standing {
        for selector in std::iter::once(*source).chain(source.wider()) {
            let entry = match changes.get(&selector) {
                Some(entry) => *entry,
                None => self.entries.get(&selector).map(|entry| entry.listed),
            };
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

    /// Stores a change before it is answered; none if there is nothing to do. After a failure it is
    /// left to [`Book::keep_stored`].
    pub(super) fn store(
        &mut self,
        state: &StateDir,
        datapath: &dyn Datapath,
    ) -> Option<Result<(), StateError>> {
        self.store.store(&self.entries, state, (datapath.now(), datapath.wall()))
    }

    /// Stores what is not on disk yet.
    pub(super) fn keep_stored(
        &mut self,
        state: &StateDir,
        datapath: &dyn Datapath,
    ) -> Result<(), StateError> {
        self.store.keep(&self.entries, state, (datapath.now(), datapath.wall()))
    }

    /// True if so many entries went since the last call that their memory is worth giving back.
    pub(super) fn many_went(&mut self) -> bool {
        let many = self.gone >= MANY;
        if many {
            self.gone = 0;
        }
        many
    }

    fn put(
        &mut self,
        datapath: &mut dyn Datapath,
        selector: Selector,
        entry: Entry,
    ) -> Result<(), ServiceError> {
        datapath.list(&selector, entry.listed)?;
        self.keep(selector, entry);
        self.store.note(selector);
        Ok(())
    }

    fn remove(
        &mut self,
        datapath: &mut dyn Datapath,
        selector: &Selector,
    ) -> Result<(), ServiceError> {
        datapath.unlist(selector)?;
        self.forget(selector);
        self.store.note(*selector);
        Ok(())
    }

    fn keep(&mut self, selector: Selector, entry: Entry) {
        self.forget(&selector);
        *self.size(&selector) += 1;
        *self.total(&entry.listed) += 1;
        if let Some((sum, addresses)) = self.of_others(&selector, &entry) {
            *sum = sum.saturating_add(addresses);
        }
        if let Some(expires) = entry.listed.expires() {
            self.first_expiry = Some(self.first_expiry.map_or(expires, |first| first.min(expires)));
        }
        self.entries.insert(selector, entry);
    }

    fn forget(&mut self, selector: &Selector) {
        if let Some(entry) = self.entries.remove(selector) {
            self.gone = MANY.min(self.gone + 1);
            *self.size(selector) -= 1;
            *self.total(&entry.listed) -= 1;
            if let Some((sum, addresses)) = self.of_others(selector, &entry) {
                *sum = sum.saturating_sub(addresses);
            }
        }
    }

    /// The sum that an entry of another node is part of, and its addresses.
    fn of_others(&mut self, selector: &Selector, entry: &Entry) -> Option<(&mut u128, u128)> {
        if entry.by.as_deref() != Some(CLUSTER) {
            return None;
        }
        let (family, addresses) = addresses(selector)?;
        let list = usize::from(entry.listed.verdict() == Some(Listed::Deny));
        Some((self.of_others.get_mut(list)?.get_mut(family)?, addresses))
    }

    /// True if an entry of another node may come to those that others made: together they have no
    /// more addresses in them than [`OTHERS`] prefixes of the `least` lengths.
    pub(super) fn has_room_of_others(
        &self,
        selector: &Selector,
        list: ListName,
        [least_v4, least_v6]: [u8; 2],
    ) -> bool {
        let Some((family, new)) = addresses(selector) else { return false };
        let list = verdict(list);
        let theirs = |entry: &Entry| {
            entry.by.as_deref() == Some(CLUSTER) && entry.listed.verdict() == Some(list)
        };
        // The entry is counted already.
        if self.entries.get(selector).is_some_and(theirs) {
            return true;
        }
        let sums = self.of_others.get(usize::from(list == Listed::Deny));
        let sum = sums.and_then(|sums| sums.get(family)).copied().unwrap_or_default();
        let bits = [32 - least_v4.min(32), 128 - least_v6.min(128)];
        let most = bits.get(family).map_or(0, |bits| OTHERS << bits);
        sum.saturating_add(new) <= most
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

    fn check_room(&self, wanted: &Wanted) -> Result<(), ServiceError> {
        let mut sizes = self.sizes;
        let at = |selector: &Selector| usize::from(!selector.is_source());
        for selector in wanted.gone.iter().filter(|gone| self.entries.contains_key(gone)) {
            if let Some(size) = sizes.get_mut(at(selector)) {
                *size = size.saturating_sub(1);
            }
        }
        for selector in wanted.put.keys().filter(|new| !self.entries.contains_key(new)) {
            if let Some(size) = sizes.get_mut(at(selector)) {
                *size += 1;
            }
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

/// Sources that are to be taken off.
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

/// Makes a management prefix safe again that was on a list by itself.
fn protect(
    datapath: &mut dyn Datapath,
    selector: Selector,
    managed: impl Fn(&Selector) -> Option<Selector>,
) -> Result<(), ServiceError> {
    if managed(&selector) == Some(selector) {
        let entry = ListEntry::new(Listed::Management, None);
        datapath.list(&selector, entry)?;
    }
    Ok(())
}

/// The family of a prefix, 0 for IPv4 and 1 for IPv6, and how many addresses it has; none for all
/// sources.
fn addresses(selector: &Selector) -> Option<(usize, u128)> {
    match selector {
        Selector::Every => None,
        Selector::Prefix(IpNet::V4(net)) => Some((0, 1 << (32 - net.prefix_len()))),
        Selector::Prefix(IpNet::V6(net)) => {
            Some((1, 1u128.checked_shl(u32::from(128 - net.prefix_len())).unwrap_or(u128::MAX)))
        }
    }
}

const fn verdict(list: ListName) -> Listed {
    match list {
        ListName::Allow => Listed::Allow,
        ListName::Deny => Listed::Deny,
    }
}
