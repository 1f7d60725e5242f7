//! Changes of this node's lists from any origin, and their storage on disk.

use std::collections::BTreeSet;
use std::sync::Arc;

use ipnet::IpNet;
use limiter_api::lists::{ListName, ListsChanged, SetList};
use limiter_rules::Selector;

use super::Service;
use super::repeated_errors::RepeatedErrors;
use crate::disk::state_dir::StateDir;
use crate::error::ServiceError;
use crate::lists::{CLUSTER, ListStore, Wanted};
use crate::machine::attached::Attached;
use crate::rule_sets::guard::{self, LEAST, LEAST_OF_OTHERS};
use crate::rule_sets::layers::Layers;

/// Name of the step that fails on a full disk.
pub(super) const SAVE_LISTS: &str = "save the lists";

/// Reason why another node may add no further entry.
const MUCH: &str = "with what other nodes have on that list, it is a large part of all addresses";

/// The lists, and the parts of the daemon that are needed to change them.
pub(crate) struct AtLists<'a> {
    datapath: &'a mut Attached,
    layers: &'a Layers,
    lists: &'a mut ListStore,
    state: &'a StateDir,
    repeated_errors: &'a mut RepeatedErrors,
}

impl Service {
    /// The lists of this node, to change them.
    pub(crate) fn at_lists(&mut self) -> AtLists<'_> {
        let Self { datapath, rule_sets, lists, state, repeated_errors, .. } = self;
        AtLists { datapath, layers: &rule_sets.layers, lists, state, repeated_errors }
    }
}

/// Addresses of this machine; empty if the system does not answer.
pub(crate) fn own_addresses(datapath: &Attached) -> Vec<(String, IpNet)> {
    let Ok(datapath) = datapath.get() else { return Vec::new() };
    // If the system does not answer, the other guards still apply.
    datapath.own_addresses().unwrap_or_else(|error| {
        tracing::warn!(%error, "own addresses are not guarded from the deny list");
        Vec::new()
    })
}

/// Reason why a source must not be banned, if any; the same as for the deny list.
pub(crate) fn hazard_of_ban(datapath: &Attached, selector: &Selector) -> Option<String> {
    guard::hazard(selector, ListName::Deny, &own_addresses(datapath), LEAST)
}

impl AtLists<'_> {
    /// Prepares the change that a request would make.
    pub(crate) fn wanted(
        &self,
        request: &SetList,
        by: Option<&Arc<str>>,
    ) -> Result<Wanted, ServiceError> {
        self.wanted_beside(request, by, &own_addresses(self.datapath))
    }

    /// As [`AtLists::wanted`], with known addresses of this machine.
    pub(crate) fn wanted_beside(
        &self,
        request: &SetList,
        by: Option<&Arc<str>>,
        own: &[(String, IpNet)],
    ) -> Result<Wanted, ServiceError> {
        let now = self.datapath.get()?.now();
        let is_other = by.is_some_and(|by| **by == *CLUSTER);
        let least = if is_other { LEAST_OF_OTHERS } else { LEAST };
        let hazard = |selector: &Selector| {
            guard::hazard(selector, request.list, own, least).or_else(|| {
                let room = self.lists.has_room_of_others(selector, request.list, LEAST_OF_OTHERS);
                (is_other && !room).then(|| MUCH.to_owned())
            })
        };
        self.lists.wanted(request, by, now, |at| self.layers.managed(at), hazard)
    }

    /// Makes a change, and stores it.
    pub(crate) fn change(&mut self, wanted: Wanted) -> Result<ListsChanged, ServiceError> {
        let changed = self.make(wanted)?;
        self.store();
        Ok(self.lists.with_store(changed))
    }

    /// As [`AtLists::change`], but stores nothing yet.
    pub(crate) fn make(&mut self, wanted: Wanted) -> Result<ListsChanged, ServiceError> {
        self.lists.make(self.datapath.get_mut()?, wanted, |selector| self.layers.managed(selector))
    }

    /// Takes sources off the lists, and stores that.
    pub(crate) fn take_off(
        &mut self,
        selectors: &BTreeSet<Selector>,
    ) -> Result<ListsChanged, ServiceError> {
        let changed = self.unmake(selectors)?;
        self.store();
        Ok(self.lists.with_store(changed))
    }

    /// As [`AtLists::take_off`], but stores nothing yet.
    pub(crate) fn unmake(
        &mut self,
        selectors: &BTreeSet<Selector>,
    ) -> Result<ListsChanged, ServiceError> {
        let datapath = self.datapath.get_mut()?;
        self.lists.unset(datapath, selectors, |selector| self.layers.managed(selector))
    }

    /// Stores a change before it is answered. The change is in force even if that fails.
    pub(crate) fn store(&mut self) {
        let Ok(datapath) = self.datapath.get() else { return };
        if let Some(done) = self.lists.store(self.state, datapath) {
            self.repeated_errors.note(SAVE_LISTS, &done.map_err(ServiceError::State));
        }
    }
}
