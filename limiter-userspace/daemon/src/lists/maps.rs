//! What decides of the entries of people, programs and rule files, in the maps.

use std::net::{IpAddr, Ipv6Addr};
use std::ops::Bound;

use ipnet::IpNet;
use limiter_common::wire::{ListEntry, Listed};
use limiter_datapath::Datapath;
use limiter_rules::Selector;

use super::ListStore;
use crate::error::ServiceError;

impl ListStore {
    /// Writes what decides on sources into the maps; if it is a word of people, also of those
    /// inside that.
    pub(super) fn settle_all(
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

    /// Writes what decides on exactly these sources into the maps.
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

/// The last selector inside another one, in the order of all.
fn last(selector: &Selector) -> Selector {
    match selector {
        Selector::Every => {
            Selector::Prefix(IpNet::from(IpAddr::V6(Ipv6Addr::from_bits(u128::MAX))))
        }
        Selector::Prefix(net) => Selector::Prefix(IpNet::from(net.broadcast())),
    }
}

/// Makes a management prefix safe again that was on a list by itself.
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
