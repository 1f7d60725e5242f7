//! Changes of this node's lists, whoever asks for them, and their place on disk.

use std::collections::BTreeSet;

use limiter_rules::Selector;

use super::Service;
use crate::api::lists::{ListsChanged, SetList};
use crate::error::ServiceError;

/// The step that is not possible on a full disk.
pub(super) const SAVE_LISTS: &str = "save the lists";

impl Service {
    /// Puts sources on a list of this node.
    pub(crate) fn put_on_list(&mut self, request: &SetList) -> Result<ListsChanged, ServiceError> {
        let datapath = self.datapath.get_mut()?;
        let layers = &self.rule_sets.layers;
        let changed = self.lists.set(datapath, request, |selector| layers.managed(selector))?;
        self.store_lists();
        Ok(changed)
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
        Ok(changed)
    }

    /// Stores a change of the lists before it is answered. It is in force also where that fails.
    fn store_lists(&mut self) {
        let Ok(datapath) = self.datapath.get() else { return };
        if let Some(done) = self.lists.store(&self.state, datapath) {
            self.troubles.note(SAVE_LISTS, &done.map_err(ServiceError::State));
        }
    }
}
