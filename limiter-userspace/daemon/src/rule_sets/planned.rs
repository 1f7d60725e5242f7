//! A rule set that can be put in force in the present state of the data path.

use limiter_api::lists::ListName;
use limiter_common::header::Direction;
use limiter_datapath::{Datapath, Hook};
use limiter_rules::{Environment, Plan};

use crate::error::ServiceError;
use crate::lists::{Laid, ListStore};
use crate::machine::attached::Attached;
use crate::machine::memory::HeapTrim;
use crate::rule_sets::effective::EffectiveSet;
use crate::rule_sets::guard;
use crate::rule_sets::layers::Layers;

/// A rule set that can be put in force in the present state of the data path.
pub(super) struct Planned {
    pub(super) layers: Layers,
    pub(super) effective: EffectiveSet,
    pub(super) plan: Plan,
    /// Entries of the rule files for the lists.
    pub(super) laid: Laid,
}

impl Planned {
    /// Plans a rule set without changing anything, so a bad set leaves no trace.
    pub(super) fn new(
        datapath: &Attached,
        heap_trim: &HeapTrim,
        lists: &ListStore,
        layers: Layers,
    ) -> Result<Self, ServiceError> {
        heap_trim.note();
        let mut effective = layers.effective();
        let laid = laid(datapath.get()?, &layers);
        lists.check_room_for(&laid)?;
        effective.warnings.extend(laid.warnings());
        let plan = plan(datapath.get()?, &layers, &effective)?;
        Ok(Self { layers, effective, plan, laid })
    }
}

/// The entries of the rule files of `layers`, in the present state of the machine.
pub(super) fn laid(datapath: &dyn Datapath, layers: &Layers) -> Laid {
    if layers.file.rules.lists.is_empty() {
        return Laid::default();
    }
    // If the system does not answer, the other guards still apply.
    let own = datapath.own_addresses().unwrap_or_else(|error| {
        tracing::warn!(%error, "own addresses are not guarded from the deny list");
        Vec::new()
    });
    Laid::of(layers, (datapath.now(), datapath.wall()), |selector| {
        let inside = |prefix| format!("it is inside the management prefix {prefix}");
        let managed = layers.managed(selector).map(inside);
        managed.or_else(|| guard::hazard(selector, ListName::Deny, &own, guard::LEAST))
    })
}

fn plan(
    datapath: &dyn Datapath,
    layers: &Layers,
    effective: &EffectiveSet,
) -> Result<Plan, ServiceError> {
    let environment = Environment {
        max_frame: datapath.max_frame(),
        interface_index: &|name| layers.index_of(name, datapath.interface_index(name)),
        cpus: datapath.cpus(),
        cluster: layers.cluster,
        in_at_tc: Some(datapath.is_at(Hook::Tc(Direction::In))),
    };
    datapath
        .installed()
        .plan(
            &effective.rule_set(),
            datapath.generation().wrapping_add(1),
            datapath.capacity(),
            &environment,
        )
        .map_err(|error| match layers.refused(&error) {
            Some(located) => ServiceError::File(located),
            None => ServiceError::Plan(error),
        })
}
