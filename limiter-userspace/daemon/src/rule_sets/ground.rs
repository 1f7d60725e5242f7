//! The parts of the daemon that are needed to put a rule set in force.

use crate::cluster::Membership;
use crate::disk::state_dir::StateDir;
use crate::error::ServiceError;
use crate::lists::{Laid, ListStore, UNCHANGED};
use crate::machine::attached::Attached;
use crate::machine::memory::HeapTrim;
use crate::rule_sets::effective::EffectiveSet;
use crate::rule_sets::guard::{Bans, Scene};
use crate::rule_sets::layers::Layers;

/// The parts of the daemon that are needed to put a rule set in force.
pub(crate) struct Ground<'a> {
    pub(crate) datapath: &'a mut Attached,
    /// The lists, which may protect a session from a rule, and to which rule files add entries.
    pub(crate) lists: &'a mut ListStore,
    /// The node, which gets the shared limits.
    pub(crate) cluster: &'a Membership,
    pub(crate) state: &'a StateDir,
    /// Notes that large rule sets leave memory behind.
    pub(crate) heap_trim: &'a HeapTrim,
}

impl Ground<'_> {
    /// Rules and entries of rule files, as they are or as they would be.
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
