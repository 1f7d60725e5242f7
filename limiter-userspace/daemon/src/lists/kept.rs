//! Entries of people, programs and other nodes: kept, counted, and put into the maps.

use ipnet::IpNet;
use limiter_api::lists::ListName;
use limiter_common::wire::{ListEntry, Listed};
use limiter_datapath::Datapath;
use limiter_rules::Selector;
use limiter_rules::model::ROOM;

use super::authors::{CLUSTER, Wanted};
use super::entries::Entry;
use super::{ListStore, MANY, verdict};
use crate::error::ServiceError;

/// Most of the widest allowed prefixes that other nodes may have on a list at once.
const OTHERS: u128 = 16;

impl ListStore {
    pub(super) fn put(
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

    pub(super) fn remove(
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

    pub(super) fn note_expiry(&mut self, entry: &Entry) {
        if let Some(expires) = entry.listed.expires() {
            self.first_expiry = Some(self.first_expiry.map_or(expires, |first| first.min(expires)));
        }
    }

    pub(super) fn keep(&mut self, selector: Selector, entry: Entry) {
        self.forget(&selector);
        *self.size(&selector) += usize::from(!self.is_listed(&selector));
        *self.total(&entry.listed) += 1;
        self.note_expiry(&entry);
        if let Some((sum, addresses)) = self.of_others(&selector, &entry) {
            *sum = sum.saturating_add(addresses);
        }
        self.entries.insert(selector, entry);
    }

    pub(super) fn forget(&mut self, selector: &Selector) {
        if let Some(entry) = self.entries.remove(selector) {
            self.gone = MANY.min(self.gone + 1);
            *self.size(selector) -= usize::from(!self.is_listed(selector));
            *self.total(&entry.listed) -= 1;
            if let Some((sum, addresses)) = self.of_others(selector, &entry) {
                *sum = sum.saturating_sub(addresses);
            }
        }
    }

    /// The sum to which an entry of another node belongs, and the number of its addresses.
    pub(super) fn of_others(
        &mut self,
        selector: &Selector,
        entry: &Entry,
    ) -> Option<(&mut u128, u128)> {
        if entry.by.as_deref() != Some(CLUSTER) {
            return None;
        }
        let (family, addresses) = addresses(selector)?;
        let list = usize::from(entry.listed.verdict() == Some(Listed::Deny));
        Some((self.of_others.get_mut(list)?.get_mut(family)?, addresses))
    }

    /// Returns true if another node may add an entry: together, such entries may cover no more
    /// addresses than [`OTHERS`] prefixes of the `least` lengths.
    pub(crate) fn has_room_of_others(
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

    pub(super) fn size(&mut self, selector: &Selector) -> &mut usize {
        let [sources, prefixes] = &mut self.sizes;
        if selector.is_source() { sources } else { prefixes }
    }

    pub(super) fn total(&mut self, entry: &ListEntry) -> &mut usize {
        match entry.verdict() {
            Some(Listed::Deny) => &mut self.totals.denied,
            _ => &mut self.totals.allowed,
        }
    }

    pub(super) fn check_room(&self, wanted: &Wanted) -> Result<(), ServiceError> {
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

/// Refuses more single sources or prefixes than there is room for.
pub(super) fn fits(sizes: [usize; 2]) -> Result<(), ServiceError> {
    for (size, (what, capacity)) in sizes.into_iter().zip(ROOM) {
        if size > capacity {
            return Err(ServiceError::ListsFull { what, capacity });
        }
    }
    Ok(())
}

/// Family of a prefix, 0 for IPv4 and 1 for IPv6, and its number of addresses; `None` for all
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
