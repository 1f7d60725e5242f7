//! A rule set that can be put in force, as the data path is now.

use limiter_datapath::Datapath;
use limiter_rules::{Environment, Plan};

use crate::attached::Attached;
use crate::effective::EffectiveSet;
use crate::error::ServiceError;
use crate::layers::Layers;
use crate::memory::Leftovers;

/// A rule set that can be put in force, as the data path is now.
pub(super) struct Planned {
    pub(super) layers: Layers,
    pub(super) effective: EffectiveSet,
    pub(super) plan: Plan,
}

impl Planned {
    /// Plans a rule set. Nothing changes, so a bad one leaves no trace.
    pub(super) fn new(
        datapath: &Attached,
        leftovers: &Leftovers,
        layers: Layers,
    ) -> Result<Self, ServiceError> {
        leftovers.note();
        let effective = layers.effective();
        let plan = plan(datapath.get()?, &layers, &effective)?;
        Ok(Self { layers, effective, plan })
    }
}

fn plan(
    datapath: &dyn Datapath,
    layers: &Layers,
    effective: &EffectiveSet,
) -> Result<Plan, ServiceError> {
    let environment = Environment {
        max_frame: datapath.max_frame(),
        interface_index: &|name| datapath.interface_index(name),
        cpus: datapath.cpus(),
        cluster: layers.cluster,
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
