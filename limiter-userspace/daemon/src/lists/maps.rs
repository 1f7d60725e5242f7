//! Writes the entries that decide, among those of people, programs and rule files, into the maps.

use std::net::{IpAddr, Ipv6Addr};
use std::ops::Bound;

use ipnet::IpNet;
use limiter_common::wire::{ListEntry, Listed};
use limiter_datapath::Datapath;
use limiter_rules::Selector;

use super::ListStore;
use crate::error::ServiceError;

impl ListStore {
    /// Writes the deciding entries of these sources into the maps; for entries of people, also
    /// those of sources inside them.
    pub(super) fn settle_all(
        &self,
        datapath: &mut dyn Datapath,
        selector: &Selector,
        people: bool,
        managed: &dyn Fn(&Selector) -> Option<Selector>,
    ) -> Result<(), ServiceError> {
        self.settle(datapath, selector, managed)?;
        // Only rule files have prefixes that override the entries inside.
        if !people || self.file.is_empty() {
            return Ok(());
        }
        self.settle_inside(datapath, selector, managed)
    }

    /// Writes the deciding entries of programs inside a prefix into the maps.
    pub(super) fn settle_inside(
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

    /// Writes the deciding entry of exactly these sources into the maps.
    pub(super) fn settle(
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
}

/// The last selector inside another one, in the order of selectors.
fn last(selector: &Selector) -> Selector {
    match selector {
        Selector::Every => {
            Selector::Prefix(IpNet::from(IpAddr::V6(Ipv6Addr::from_bits(u128::MAX))))
        }
        Selector::Prefix(net) => Selector::Prefix(IpNet::from(net.broadcast())),
    }
}

/// Makes a management prefix safe again that itself was on a list.
pub(super) fn protect(
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
