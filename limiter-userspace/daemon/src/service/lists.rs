//! Changes of this node's lists, whoever asks for them, and their place on disk.

use std::collections::BTreeSet;
use std::sync::Arc;

use ipnet::IpNet;
use limiter_rules::Selector;

use super::Service;
use crate::api::lists::{ListName, ListsChanged, SetList};
use crate::api::rules::Session;
use crate::error::ServiceError;
use crate::guard::{self, LEAST, LEAST_OF_OTHERS};
use crate::lists::{CLUSTER, Wanted};

/// The step that is not possible on a full disk.
pub(super) const SAVE_LISTS: &str = "save the lists";

impl Service {
    /// Works out what a request would change of the lists of this node.
    pub(crate) fn wanted(
        &self,
        request: &SetList,
        by: Option<&Arc<str>>,
    ) -> Result<Wanted, ServiceError> {
        let layers = &self.rule_sets.layers;
        let now = self.datapath.get()?.now();
        let of_others = by.is_some_and(|by| **by == *CLUSTER);
        let least = if of_others { LEAST_OF_OTHERS } else { LEAST };
        let own = self.guarded_addresses()?;
        let guarded = by.is_none() && self.is_guarded(request.session.as_ref());
        let hazard = |selector: &Selector| {
            let found = guard::hazard(selector, request.list, &own, least);
            found.filter(|_| !guarded)
        };
        self.lists.wanted(request, by, now, |at| layers.managed(at), hazard)
    }

    /// Addresses of this machine, which nobody is to deny by mistake.
    fn guarded_addresses(&self) -> Result<Vec<(String, IpNet)>, ServiceError> {
        // Without an answer the other guards hold.
        Ok(self.datapath.get()?.own_addresses().unwrap_or_else(|error| {
            tracing::warn!(%error, "own addresses are not guarded from the deny list");
            Vec::new()
        }))
    }

    /// True for a person with a session, or of a daemon that knows its managers: the guards of these
    /// are enough.
    pub(crate) fn is_guarded(&self, session: Option<&Session>) -> bool {
        session.is_some() || self.rule_sets.layers.has_managers()
    }

    /// The reason why a source should not be banned, if there is one: as it should not be denied.
    pub(crate) fn hazard_of_ban(
        &self,
        selector: &Selector,
    ) -> Result<Option<String>, ServiceError> {
        Ok(guard::hazard(selector, ListName::Deny, &self.guarded_addresses()?, LEAST))
    }

    /// Makes a change of the lists of this node.
    pub(crate) fn change_lists(&mut self, wanted: Wanted) -> Result<ListsChanged, ServiceError> {
        let datapath = self.datapath.get_mut()?;
        let layers = &self.rule_sets.layers;
        let changed = self.lists.make(datapath, wanted, |selector| layers.managed(selector))?;
        self.store_lists();
        Ok(self.with_store(changed))
    }

    /// Takes sources off the lists of this node.
    pub(crate) fn take_off_lists(
        &mut self,
        selectors: &BTreeSet<Selector>,
    ) -> Result<ListsChanged, ServiceError> {
        let datapath = self.datapath.get_mut()?;
        let layers = &self.rule_sets.layers;
        let changed = self.lists.unset(datapath, selectors, |selector| layers.managed(selector))?;
        self.store_lists();
        Ok(self.with_store(changed))
    }

    /// The answer to a change, with what is not on disk of it.
    pub(crate) fn with_store(&self, changed: ListsChanged) -> ListsChanged {
        ListsChanged { not_saved: self.lists.not_saved().map(str::to_owned), ..changed }
    }

    /// Stores a change of the lists before it is answered. It is in force also where that fails.
    fn store_lists(&mut self) {
        let Ok(datapath) = self.datapath.get() else { return };
        if let Some(done) = self.lists.store(&self.state, datapath) {
            self.troubles.note(SAVE_LISTS, &done.map_err(ServiceError::State));
        }
    }
}
