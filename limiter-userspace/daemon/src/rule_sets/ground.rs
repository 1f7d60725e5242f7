//! The parts of the daemon that a rule set is put in force with.

use crate::attached::Attached;
use crate::cluster::Membership;
use crate::effective::EffectiveSet;
use crate::error::ServiceError;
use crate::guard::{Bans, Scene};
use crate::layers::Layers;
use crate::lists::{Laid, ListStore, UNCHANGED};
use crate::memory::HeapTrim;
use crate::state_dir::StateDir;

/// The parts of the daemon that a rule set is put in force with.
pub(crate) struct Ground<'a> {
    pub(crate) datapath: &'a mut Attached,
    /// The lists, which may keep a session safe from a rule, and to which rule files have entries.
    pub(crate) lists: &'a mut ListStore,
    /// The node that is given shared limits.
    pub(crate) cluster: &'a Membership,
    pub(crate) state: &'a StateDir,
    /// Memory that large rule sets leave behind.
    pub(crate) heap_trim: &'a HeapTrim,
}

impl Ground<'_> {
    /// Rules as they are or would be, with the entries of rule files as they would be.
    pub(super) fn scene<'a>(
        &'a self,
        layers: &'a Layers,
        effective: &'a EffectiveSet,
        laid: Option<&'a Laid>,
    ) -> Result<Scene<'a>, ServiceError> {
        let datapath = self.datapath.get()?;
        let (lists, changes, bans) = (&*self.lists, &UNCHANGED, Bans(datapath));
        Ok(Scene { layers, effective, lists, changes, laid, bans, now: datapath.now() })
    }
}
