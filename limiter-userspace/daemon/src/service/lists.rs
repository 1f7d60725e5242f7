//! Changes of this node's lists from any origin, and their storage on disk.

use std::collections::BTreeSet;
use std::sync::Arc;

use ipnet::IpNet;
use limiter_api::lists::{ListName, ListsChanged, SetList};
use limiter_rules::Selector;

use super::Service;
use crate::error::ServiceError;
use crate::lists::{CLUSTER, Wanted};
use crate::rule_sets::guard::{self, LEAST, LEAST_OF_OTHERS};

/// Name of the step that fails on a full disk.
pub(super) const SAVE_LISTS: &str = "save the lists";

/// Reason why another node may add no further entry.
const MUCH: &str = "with what other nodes have on that list, it is a large part of all addresses";

impl Service {
    /// Prepares the change that a request would make to the lists of this node.
    pub(crate) fn wanted(
        &self,
        request: &SetList,
        by: Option<&Arc<str>>,
    ) -> Result<Wanted, ServiceError> {
        self.wanted_beside(request, by, &self.own_addresses())
    }

    /// Addresses of this machine; empty if the system does not answer.
    pub(crate) fn own_addresses(&self) -> Vec<(String, IpNet)> {
        let Ok(datapath) = self.datapath.get() else { return Vec::new() };
        // If the system does not answer, the other guards still apply.
        datapath.own_addresses().unwrap_or_else(|error| {
            tracing::warn!(%error, "own addresses are not guarded from the deny list");
            Vec::new()
        })
    }

    /// As [`Service::wanted`], with known addresses of this machine.
    pub(super) fn wanted_beside(
        &self,
        request: &SetList,
        by: Option<&Arc<str>>,
        own: &[(String, IpNet)],
    ) -> Result<Wanted, ServiceError> {
        let layers = &self.rule_sets.layers;
        let now = self.datapath.get()?.now();
        let is_other = by.is_some_and(|by| **by == *CLUSTER);
        let least = if is_other { LEAST_OF_OTHERS } else { LEAST };
        let hazard = |selector: &Selector| {
            guard::hazard(selector, request.list, own, least).or_else(|| {
                let room = self.lists.has_room_of_others(selector, request.list, LEAST_OF_OTHERS);
                (is_other && !room).then(|| MUCH.to_owned())
            })
        };
        self.lists.wanted(request, by, now, |at| layers.managed(at), hazard)
    }

    /// Reason why a source must not be banned, if any; the same as for the deny list.
    pub(crate) fn hazard_of_ban(&self, selector: &Selector) -> Option<String> {
        guard::hazard(selector, ListName::Deny, &self.own_addresses(), LEAST)
    }

    /// Makes a change of the lists of this node.
    pub(crate) fn change_lists(&mut self, wanted: Wanted) -> Result<ListsChanged, ServiceError> {
        let changed = self.make_lists(wanted)?;
        self.store_lists();
        Ok(self.with_store(changed))
    }

    /// As [`Service::change_lists`], but stores nothing yet.
    pub(super) fn make_lists(&mut self, wanted: Wanted) -> Result<ListsChanged, ServiceError> {
        let datapath = self.datapath.get_mut()?;
        let layers = &self.rule_sets.layers;
        self.lists.make(datapath, wanted, |selector| layers.managed(selector))
    }

    /// Removes sources from the lists of this node.
    pub(crate) fn take_off_lists(
        &mut self,
        selectors: &BTreeSet<Selector>,
    ) -> Result<ListsChanged, ServiceError> {
        let changed = self.unmake_lists(selectors)?;
        self.store_lists();
        Ok(self.with_store(changed))
    }

    /// As [`Service::take_off_lists`], but stores nothing yet.
    pub(super) fn unmake_lists(
        &mut self,
        selectors: &BTreeSet<Selector>,
    ) -> Result<ListsChanged, ServiceError> {
        let datapath = self.datapath.get_mut()?;
        let layers = &self.rule_sets.layers;
        self.lists.unset(datapath, selectors, |selector| layers.managed(selector))
    }

    /// The answer to a change, with the reason if it is not on disk.
    pub(crate) fn with_store(&self, changed: ListsChanged) -> ListsChanged {
        ListsChanged { not_saved: self.lists.not_saved().map(str::to_owned), ..changed }
    }

    /// Stores a change of the lists before it is answered. The change is in force even if that
    /// fails.
    pub(super) fn store_lists(&mut self) {
        let Ok(datapath) = self.datapath.get() else { return };
        if let Some(done) = self.lists.store(&self.state, datapath) {
            self.repeated_errors.note(SAVE_LISTS, &done.map_err(ServiceError::State));
        }
    }
}
