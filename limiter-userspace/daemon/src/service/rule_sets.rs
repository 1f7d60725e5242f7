//! Whole rule sets: from the rule files into force.

use std::time::Duration;

use limiter_datapath::Datapath;
use limiter_rules::{Environment, Plan, Subject};

use super::Service;
use super::in_force::Planned;
use crate::api::rules::Changed;
use crate::api::rules::{
    ApplyRules, ChangedRule, CompareRules, Document, ReloadRules, RuleLine, RulesDiff,
};
use crate::control::Refusal;
use crate::error::ServiceError;
use crate::guard::{self, Hand};
use crate::layers::{EffectiveSet, Layers};
use crate::lists::Changes;
use crate::rule_files::{self, Digest};
use crate::state_dir::{APPLIED, Applied};

/// The longest trial in seconds: a day.
const MAX_TRIAL: u32 = 86_400;

impl Service {
    /// Reads the rule files again.
    pub(crate) fn try_reload(&mut self, asked: ReloadRules) -> Result<Changed, ServiceError> {
        self.not_on_trial()?;
        self.leftovers.note();
        let max_frame = self.datapath()?.max_frame();
        let read = rule_files::read(&self.paths);
        // Files with a mistake are remembered, too: they are tried again when they are other ones.
        self.seen = Digest::of(&read);
        let file = rule_files::parse(&read?, max_frame)?;
        let planned = self.planned(self.layers.with_file(file, false))?;
        let lifts_all =
            self.layers.file.rules.limits_anybody() && !planned.layers.file.rules.limits_anybody();
        if lifts_all && !asked.force {
            return Err(ServiceError::LiftsAll { files: rule_files::names(&self.paths) });
        }
        if self.layers.applied {
            let forgotten = self.state.removal(APPLIED);
            self.apply_and_keep(planned, forgotten)?;
        } else {
            self.put_in_force(planned, None)?;
        }
        self.changed()
    }

    /// Differences that other rule files would make.
    pub(crate) fn compare(&self, rules: &CompareRules) -> Result<RulesDiff, Refusal> {
        let Planned { layers, .. } = self.read_and_planned(&rules.documents)?;
        let generation = self.datapath()?.generation();
        let edits = self.layers.edits().lines().into_iter().map(line).collect();
        let mut new = layers.file.rules.lines();
        let mut diff = RulesDiff { generation, edits, ..RulesDiff::default() };
        for (subject, old) in self.layers.file.rules.lines() {
            let subject_text = subject.to_string();
            match new.remove(&subject) {
                None => diff.removed.push(RuleLine { subject: subject_text, text: old }),
                Some(new) if new == old => diff.unchanged += 1,
                Some(new) => diff.changed.push(ChangedRule { subject: subject_text, old, new }),
            }
        }
        diff.added = new.into_iter().map(line).collect();
        diff.same = diff.added.is_empty() && diff.removed.is_empty() && diff.changed.is_empty();
        Ok(diff)
    }

    /// Puts other rules in the place of the rule files.
    pub(crate) fn apply_rules(&mut self, rules: &ApplyRules) -> Result<Changed, Refusal> {
        self.not_on_trial()?;
        let planned = self.read_and_planned(&rules.documents)?;
        let hand = Hand { session: rules.session, force: rules.force };
        let unchanged = Changes::new();
        let scene = self.scene(&planned.layers, &planned.effective, &unchanged)?;
        hand.heed(guard::objection_to_rules(scene, rules.session.as_ref()))?;
        // The documents replace the files as they are now: a change after this is a change.
        let replaces = Digest::of(&rule_files::read(&self.paths));
        if let Some(seconds) = rules.confirm_seconds {
            if seconds.get() > MAX_TRIAL {
                return Err(ServiceError::LongTrial.into());
            }
            let time = Duration::from_secs(u64::from(seconds.get()));
            return Ok(self.try_out(planned, &rules.documents, replaces, time)?);
        }
        let applied =
            Applied { replaces: replaces.to_string(), documents: rules.documents.clone() };
        let prepared = self.state.prepare(APPLIED, &serde_json::to_string(&applied)?)?;
        self.apply_and_keep(planned, prepared)?;
        self.seen = replaces;
        Ok(self.changed()?)
    }

    /// The layers with other rule files.
    fn read_and_planned(&self, documents: &[Document]) -> Result<Planned, ServiceError> {
        // Files with a mistake leave memory behind, too, and so do those that are only compared.
        self.leftovers.note();
        if documents.is_empty() {
            return Err(ServiceError::NoDocuments);
        }
        let file = rule_files::parse(documents, self.datapath()?.max_frame())?;
        self.planned(self.layers.with_file(file, true))
    }
}

fn line((subject, text): (Subject, String)) -> RuleLine {
    RuleLine { subject: subject.to_string(), text }
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
