//! Whole rule sets: from the rule files into force.

use super::Service;
use crate::control::api::{Changed, Origin};
use crate::daemon::datapath::Datapath;
use crate::daemon::error::ServiceError;
use crate::daemon::layers::{EffectiveSet, Layers};
use crate::daemon::rule_files::{self, Digest};
use crate::rules::file::Problem;
use crate::rules::{Environment, Plan, PlanError, RuleFileError, Subject};

impl Service {
    /// Reads the rule files again.
    pub(super) fn try_reload(&mut self) -> Result<Changed, ServiceError> {
        let max_frame = self.datapath()?.max_frame();
        let read = rule_files::read(&self.paths);
        // Also of files with a mistake: they are tried again when they are other ones.
        self.seen = Digest::of(&read);
        let file = rule_files::parse(&read?, max_frame)?;
        let layers = Layers { file, ..self.layers.clone() };
        self.apply(layers)?;
        self.changed()
    }
}

pub(super) fn plan(
    datapath: &dyn Datapath,
    layers: &Layers,
    effective: &EffectiveSet,
) -> Result<Plan, ServiceError> {
    let environment = Environment {
        max_frame: datapath.max_frame(),
        interface_index: &|name| datapath.interface_index(name),
        cpus: datapath.cpus(),
    };
    datapath
        .installed()
        .plan(
            &effective.rule_set(),
            datapath.generation().wrapping_add(1),
            datapath.capacity(),
            &environment,
        )
        .map_err(|error| match locate(layers, effective, &error) {
            Some(located) => ServiceError::File(located),
            None => ServiceError::Plan(error),
        })
}

/// Names the file and the line that a plan failed at, if it is one.
pub(in crate::daemon) fn locate(
    layers: &Layers,
    effective: &EffectiveSet,
    error: &PlanError,
) -> Option<RuleFileError> {
    let subject = error.subject()?;
    let from_file = match subject {
        Subject::Source(selector) => {
            effective.rules.get(selector).is_some_and(|e| e.origin == Origin::File)
        }
        // Nobody else can make them.
        Subject::Keyed(_) | Subject::Budget(_) | Subject::Replies | Subject::Bans => true,
    };
    let place = layers.file.places.get(subject).filter(|_| from_file)?;
    Some(RuleFileError {
        file: place.file.to_string(),
        place: Some(place.place),
        problem: Problem::Limit(error.to_string()),
    })
}
