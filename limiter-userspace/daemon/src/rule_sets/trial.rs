//! Rule sets on trial: in force until they are confirmed or their time has passed.
//!
//! The program goes back by itself. The daemon only has to notice, and then forgets the rules on
//! trial.

use std::time::Duration;

use limiter_api::render::exact;
use limiter_api::rules::{Changed, Trial, TrialEnd};
use limiter_common::time::Ticks;
use limiter_datapath::TrialOutcome;
use limiter_rules::Selector;

use super::ground::Ground;
use super::in_force::is_used;
use super::planned::{Planned, laid};
use super::state::{RuleSets, TriedFrom, Trying};
use crate::control::Refusal;
use crate::disk::state_dir::{APPLIED, Applied, StateError};
use crate::error::ServiceError;
use crate::machine::attached::Attached;
use crate::rule_sets::layers::Layers;
use crate::rule_sets::rule_files::Digest;

impl RuleSets {
    /// Puts a checked rule set in force for a time.
    pub(super) fn try_out(
        &mut self,
        ground: &mut Ground<'_>,
        planned: Planned,
        origin: TriedFrom,
        replaces: Digest,
        time: Duration,
    ) -> Result<Changed, ServiceError> {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let now = ground.datapath.get()?.now().as_nanos();
        let end = Ticks::from_nanos(now.saturating_add(nanos));
        let (layers, effective) = self.put_in_force(ground, planned, Some(end))?;
        self.trial = Some(Trying { layers, effective, origin, replaces, end });
        let time = exact(time);
        tracing::warn!("on trial for {time}: `limiter confirm` keeps these rules");
        Ok(self.changed(ground.datapath.get()?))
    }

    /// Refuses changes of the rules during a trial.
    pub(crate) fn not_on_trial(&mut self, ground: &mut Ground<'_>) -> Result<(), ServiceError> {
        self.settle(ground)?;
        match self.trial {
            Some(_) => Err(ServiceError::OnTrial),
            None => Ok(()),
        }
    }

    /// Notices that a trial has ended.
    pub(crate) fn settle(&mut self, ground: &mut Ground<'_>) -> Result<(), ServiceError> {
        let Some(trial) = &self.trial else { return Ok(()) };
        if ground.datapath.get()?.now() < trial.end {
            return Ok(());
        }
        self.take_back(ground, "nobody confirmed them in time")?;
        self.trials.expired += 1;
        Ok(())
    }

    /// Keeps the rules on trial.
    pub(crate) fn confirm(&mut self, ground: &mut Ground<'_>) -> Result<Changed, Refusal> {
        self.settle(ground)?;
        let Some(trial) = &self.trial else {
            return Err(ServiceError::NoTrial.into());
        };
        let replaces = trial.replaces;
        // Written before it counts: if the disk is full, nothing is confirmed.
        let prepared = match &trial.origin {
            TriedFrom::Applied(documents) => {
                let (replaces, documents) = (replaces.to_string(), documents.clone());
                let applied = Applied { replaces, documents };
                ground.state.prepare(APPLIED, &serde_json::to_string(&applied)?)?
            }
            TriedFrom::Files => ground.state.removal(APPLIED),
        };
        // Done before the end is removed: new entries on the lists would end with the trial.
        self.lay(ground)?;
        let datapath = ground.datapath.get_mut()?;
        match datapath.confirm()? {
            TrialOutcome::Confirmed => {}
            TrialOutcome::Reverted => {
                self.restore(ground, "the confirmation came too late");
                self.trials.expired += 1;
                return Err(ServiceError::TooLate.into());
            }
        }
        let before = self.trial.take().map(|trial| trial.layers).unwrap_or_default();
        if let Err(store) = prepared.publish() {
            return Err(self.not_kept(ground, before, store).into());
        }
        self.last_trial = Some(TrialEnd { confirmed: true, reason: None });
        self.trials.confirmed += 1;
        self.took(ground.state, replaces);
        tracing::info!("the rules on trial are confirmed");
        if ground.datapath.get()?.installed().has_cuts_on_trial()
            && let Err(error) = self.apply(ground, self.layers.clone())
        {
            tracing::warn!(
                %error,
                "sources that used more than a limit now allows owe it until the next change of \
                 the rules"
            );
        }
        Ok(self.changed(ground.datapath.get()?))
    }

    /// Takes back confirmed rules that could not be stored, because a start would not know them.
    fn not_kept(
        &mut self,
        ground: &mut Ground<'_>,
        before: Layers,
        store: StateError,
    ) -> ServiceError {
        match self.apply(ground, before) {
            Ok(()) => {
                let reason = format!("they could not be stored: {store}");
                tracing::warn!("the rules on trial are taken back: {reason}");
                self.last_trial = Some(TrialEnd { confirmed: false, reason: Some(reason) });
                ServiceError::NotKept { store }
            }
            Err(undo) => {
                self.last_trial = Some(TrialEnd { confirmed: true, reason: None });
                ServiceError::Torn { store, undo: Box::new(undo) }
            }
        }
    }

    /// Takes the rules on trial back.
    pub(crate) fn revert(&mut self, ground: &mut Ground<'_>) -> Result<Changed, Refusal> {
        self.settle(ground)?;
        if self.trial.is_none() {
            return Err(ServiceError::NoTrial.into());
        }
        self.take_back(ground, "`limiter revert`")?;
        self.trials.reverted += 1;
        Ok(self.changed(ground.datapath.get()?))
    }

    /// The rule set on trial, and its remaining time.
    pub(crate) fn trial(&self, datapath: &Attached) -> Option<Trial> {
        let trial = self.trial.as_ref()?;
        let now = datapath.get().ok()?.now();
        let nanos = trial.end.as_nanos().saturating_sub(now.as_nanos());
        Some(Trial { seconds_left: nanos.div_ceil(1_000_000_000) })
    }

    fn take_back(&mut self, ground: &mut Ground<'_>, reason: &str) -> Result<(), ServiceError> {
        let datapath = ground.datapath.get_mut()?;
        let tried = datapath.installed().clone();
        datapath.revert()?;
        let is_used = |holder| is_used(datapath, holder);
        self.used = datapath.installed().used_of(&tried, is_used).line();
        self.restore(ground, reason);
        Ok(())
    }

    /// Restores the reported rules after the data path has returned to its previous state.
    fn restore(&mut self, ground: &mut Ground<'_>, reason: &str) {
        if let Some(Trying { layers, effective, .. }) = self.trial.take() {
            self.layers = layers;
            self.effective = effective;
            ground.cluster.share(&self.layers, &self.effective);
        }
        self.relay =
            self.lay(ground).inspect_err(|error| tracing::error!(%error, "lists")).is_err();
        tracing::warn!("the rules on trial are taken back: {reason}");
        self.last_trial = Some(TrialEnd { confirmed: false, reason: Some(reason.to_owned()) });
    }

    /// Puts the entries of the rule files in force, in the present state of the machine.
    fn lay(&self, ground: &mut Ground<'_>) -> Result<(), ServiceError> {
        let laid = laid(ground.datapath.get()?, &self.layers);
        let managed = |selector: &Selector| self.layers.managed(selector);
        ground.lists.lay(ground.datapath.get_mut()?, &laid, managed).map(drop)
    }

    /// Puts the entries of the rule files in force again if that failed before, or if the clock by
    /// which some of them end was set.
    pub(crate) fn keep_lists(&mut self, ground: &mut Ground<'_>) -> Result<(), ServiceError> {
        let ends = || self.layers.file.rules.lists.values().any(|entry| entry.until.is_some());
        let set = ground.lists.is_clock_set(ground.datapath.get()?);
        let is_due = self.relay || set && ends();
        if self.trial.is_some() || !is_due {
            return Ok(());
        }
        let laid = self.lay(ground);
        self.relay = laid.is_err();
        laid
    }
}
