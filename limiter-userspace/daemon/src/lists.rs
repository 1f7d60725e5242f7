//! Allow and deny lists: what is on them, until when, and who may not be denied.
//!
//! While maps are pinned they are the truth, so a restart adopts the lists with everything else.
//! The files in the state directory bring them back after a reboot.

mod authors;
mod entries;
mod laid;
mod reason;
mod saved;
mod standing;
mod store;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::Bound;
use std::time::Duration;

use ipnet::IpNet;
use limiter_common::time::Ticks;
use limiter_common::wire::{ListEntry, Listed};
use limiter_datapath::Datapath;
use limiter_rules::model::ROOM;
use limiter_rules::{Selector, source_text};
use limiter_text::plain::clean;

use super::error::ServiceError;
use super::state_dir::{Damage, StateDir, StateError};
use crate::api::lists::{ListName, ListedSource, ListsChanged, RULE_FILE, UnsetList};
use crate::render::seconds;
use entries::{Entries, Entry};
use saved::Reasons;
use standing::All;
use store::Store;

pub(super) use authors::{CLUSTER, Wanted, author};
pub(super) use entries::name;
pub(super) use laid::{Laid, over};
pub(super) use standing::{Changes, UNCHANGED};

/// Widest entries of other nodes that there may be on a list at once.
const OTHERS: u128 = 16;

/// Entries that went since memory was given back last, from which on that is worth it.
const MANY: usize = 1_000;

/// The lists, as the daemon knows them.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// Entries of people, programs and other nodes.
    entries: Entries,
    /// Entries of the rule files.
    file: Entries,
    /// The two clocks when those of the rule files came in force.
    laid_at: (Ticks, Duration),
    /// Single sources, and prefixes, with an entry: what [`ROOM`] bounds.
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
                book.put(datapath, selector, entry, &|_| None)?;
            }
        }
        // The maps have no reasons.
        let mut reasons =
            if found.is_empty() { Reasons::new() } else { saved::reasons(state, &mut damage) };
        // Nor what an entry of a rule file stands over.
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
                book.keep_file(selector, Some(Entry { listed: entry, reason: None, by }));
                if let Some(entry) = beneath.remove(&selector) {
                    book.keep(selector, entry);
                }
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
                book.remove(datapath, &selector, &|_| None)?;
            }
            if !book.is_listed(prefix) {
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

    /// Undoes a change, as far as the kernel lets.
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
            if let Err(error) = self.remove(datapath, selector, &managed) {
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
            // Of those that have expired none decides.
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

    /// The sources after one, in their order, with the entries for them as they are told: none of
    /// those that have expired.
    pub(super) fn after(
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
            let told = both.filter_map(|(at, entry)| self.listed(at, entry, now));
            Some((selector, told.collect()))
        })
    }

    /// An entry as it is told; none of one that has expired.
    fn listed(&self, at: &Selector, entry: &Entry, now: Ticks) -> Option<ListedSource> {
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

    /// The reason why an entry is not in force; none if it is.
    fn overruled(&self, at: &Selector, entry: &Entry, now: Ticks) -> Option<String> {
        let decides = self.deciding(at, now)?;
        if std::ptr::eq(decides, entry) {
            return None;
        }
        let around = |at: &Selector| self.file.get(at).is_some_and(|it| std::ptr::eq(it, decides));
        Some(match at.wider().find(around) {
            Some(prefix) => format!("it is inside {prefix}, which is {}", decides.told()),
            None => format!("it is {}", decides.told()),
        })
    }

    /// The entry of the lists that decides on a source, in words; and those beside it for the same
    /// sources, which are not in force.
    pub(super) fn beside(&self, source: &Selector, now: Ticks) -> Vec<ListedSource> {
        let mut at = std::iter::once(*source).chain(source.wider());
        let Some(at) = at.find(|at| self.deciding(at, now).is_some()) else { return Vec::new() };
        let both = [self.entries.get(&at), self.file.get(&at)].into_iter().flatten();
        let told = both.filter_map(|entry| self.listed(&at, entry, now));
        told.filter(|told| told.not_in_force.is_some()).collect()
    }

    fn all(&self) -> All<'_> {
        All { entries: &self.entries, changes: &UNCHANGED, file: &self.file }
    }

    /// The entry that the maps have for exactly these sources.
    fn deciding(&self, at: &Selector, now: Ticks) -> Option<&Entry> {
        self.all().deciding(at, now)
    }

    /// True if there is an entry for exactly these sources.
    fn is_listed(&self, at: &Selector) -> bool {
        self.entries.contains_key(at) || self.file.contains_key(at)
    }

    /// True if only the rule file has an entry for exactly these sources.
    pub(super) fn is_of_rule_file(&self, at: &Selector) -> bool {
        !self.entries.contains_key(at) && self.file.contains_key(at)
    }

    /// Entries on the two lists.
    pub(super) fn totals(&self) -> ListsChanged {
        self.totals.clone()
    }

    /// How a source stands on the lists now, in words: by its own entry, else by the one around it.
    pub(super) fn told(&self, source: &Selector, now: Ticks) -> String {
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

    /// Why changes are not on disk; none if they are.
    pub(super) fn not_saved(&self) -> Option<&str> {
        self.store.not_saved()
    }

    /// True if the entry that decides on a source is not on disk, and could not be.
    pub(super) fn lacks(&self, source: &Selector, now: Ticks) -> bool {
        let mut at = std::iter::once(*source).chain(source.wider());
        let decides = at.find_map(|at| Some((at, self.deciding(&at, now)?)));
        decides.is_some_and(|(at, entry)| !entry.is_of_rule_file() && self.store.lacks(&at))
    }

    /// The list that decides on a source now; none if the rules do.
    pub(super) fn of(&self, source: &Selector, now: Ticks) -> Option<ListName> {
        self.entry(source, now).and_then(|entry| entry.at(now)).map(name)
    }

    /// The reason that was given for the entry that decides on a source now, and its author.
    pub(super) fn words_of(&self, source: &Selector, now: Ticks) -> [Option<&str>; 2] {
        let entry = self.found(source, now);
        let reason = entry.and_then(|entry| entry.reason.as_deref());
        [reason, entry.and_then(|entry| entry.by.as_deref())]
    }

    /// The entry that the program finds for a source: its own, else that of the longest prefix, if
    /// it has not expired. By look-ups, because a proxy may ask for each of its requests.
    pub(super) fn entry(&self, source: &Selector, now: Ticks) -> Option<ListEntry> {
        self.found(source, now).map(|entry| entry.listed)
    }

    fn found(&self, source: &Selector, now: Ticks) -> Option<&Entry> {
        let longest = || {
            let prefix = source.wider().find(|prefix| self.is_listed(prefix))?;
            self.deciding(&prefix, now)
        };
        self.deciding(source, now).or_else(longest)
    }

    /// Effect of the lists on a source, now and once the entries that end have ended, if `changes`
    /// were made, and with these entries of rule files, if they are others than now.
    pub(super) fn standing(
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
        managed: &dyn Fn(&Selector) -> Option<Selector>,
    ) -> Result<(), ServiceError> {
        let before = self.entries.get(&selector).cloned();
        let people = entry.is_of_people() || before.as_ref().is_some_and(Entry::is_of_people);
        self.keep(selector, entry);
        let done = self.settle_all(datapath, &selector, people, managed);
        if done.is_err() {
            self.forget(&selector);
            if let Some(before) = before {
                self.keep(selector, before);
            }
            return done;
        }
        self.store.note(selector);
        Ok(())
    }

    /// Writes what decides on sources into the maps; if it is a word of people, also of those
    /// inside that.
    fn settle_all(
        &self,
        datapath: &mut dyn Datapath,
        selector: &Selector,
        people: bool,
        managed: &dyn Fn(&Selector) -> Option<Selector>,
    ) -> Result<(), ServiceError> {
        self.settle(datapath, selector, managed)?;
        // Only rule files have prefixes that stand over what is inside.
        if !people || self.file.is_empty() {
            return Ok(());
        }
        self.settle_inside(datapath, selector, managed)
    }

    /// Writes what decides on the sources of programs inside a prefix into the maps.
    fn settle_inside(
        &self,
        datapath: &mut dyn Datapath,
        selector: &Selector,
        managed: &dyn Fn(&Selector) -> Option<Selector>,
    ) -> Result<(), ServiceError> {
        if selector.is_source() {
            return Ok(());
        }
        let from = Bound::Excluded(*selector);
        for (at, entry) in self.entries.range((from, Bound::Included(last(selector)))) {
            if !entry.is_of_people() {
                self.settle(datapath, at, managed)?;
            }
        }
        Ok(())
    }

    /// Writes what decides on exactly these sources into the maps.
    fn settle(
        &self,
        datapath: &mut dyn Datapath,
        selector: &Selector,
        managed: &dyn Fn(&Selector) -> Option<Selector>,
    ) -> Result<(), ServiceError> {
        if let Some(entry) = self.deciding(selector, datapath.now()) {
            return Ok(datapath.list(selector, entry.listed)?);
        }
        datapath.unlist(selector)?;
        protect(datapath, *selector, managed)
    }

    fn remove(
        &mut self,
        datapath: &mut dyn Datapath,
        selector: &Selector,
        managed: &dyn Fn(&Selector) -> Option<Selector>,
    ) -> Result<(), ServiceError> {
        let before = self.entries.get(selector).cloned();
        let people = before.as_ref().is_some_and(Entry::is_of_people);
        self.forget(selector);
        let done = self.settle_all(datapath, selector, people, managed);
        if done.is_err() {
            if let Some(before) = before {
                self.keep(*selector, before);
            }
            return done;
        }
        self.store.note(*selector);
        Ok(())
    }

    /// Puts an entry of a rule file in the place of the one before, or takes that away.
    fn keep_file(&mut self, selector: Selector, entry: Option<Entry>) {
        if let Some(old) = self.file.remove(&selector) {
            *self.total(&old.listed) -= 1;
            *self.size(&selector) -= usize::from(!self.is_listed(&selector));
        }
        let Some(entry) = entry else { return };
        *self.size(&selector) += usize::from(!self.is_listed(&selector));
        *self.total(&entry.listed) += 1;
        self.note_expiry(&entry);
        self.file.insert(selector, entry);
    }

    fn note_expiry(&mut self, entry: &Entry) {
        if let Some(expires) = entry.listed.expires() {
            self.first_expiry = Some(self.first_expiry.map_or(expires, |first| first.min(expires)));
        }
    }

    fn keep(&mut self, selector: Selector, entry: Entry) {
        self.forget(&selector);
        *self.size(&selector) += usize::from(!self.is_listed(&selector));
        *self.total(&entry.listed) += 1;
        self.note_expiry(&entry);
        if let Some((sum, addresses)) = self.of_others(&selector, &entry) {
            *sum = sum.saturating_add(addresses);
        }
        self.entries.insert(selector, entry);
    }

    fn forget(&mut self, selector: &Selector) {
        if let Some(entry) = self.entries.remove(selector) {
            self.gone = MANY.min(self.gone + 1);
            *self.size(selector) -= usize::from(!self.is_listed(selector));
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
        let frees =
            |gone: &&Selector| self.entries.contains_key(*gone) && !self.file.contains_key(*gone);
        for selector in wanted.gone.iter().filter(frees) {
            if let Some(size) = sizes.get_mut(at(selector)) {
                *size = size.saturating_sub(1);
            }
        }
        for selector in wanted.put.keys().filter(|new| !self.is_listed(new)) {
            if let Some(size) = sizes.get_mut(at(selector)) {
                *size += 1;
            }
        }
        fits(sizes)
    }
}

/// Refuses more single sources and prefixes than there is room for.
fn fits(sizes: [usize; 2]) -> Result<(), ServiceError> {
    for (size, (what, capacity)) in sizes.into_iter().zip(ROOM) {
        if size > capacity {
            return Err(ServiceError::ListsFull { what, capacity });
        }
    }
    Ok(())
}

/// The last selector inside another one, in the order of all.
fn last(selector: &Selector) -> Selector {
    match selector {
        Selector::Every => {
            Selector::Prefix(IpNet::from(IpAddr::V6(Ipv6Addr::from_bits(u128::MAX))))
        }
        Selector::Prefix(net) => Selector::Prefix(IpNet::from(net.broadcast())),
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
    managed: &dyn Fn(&Selector) -> Option<Selector>,
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
