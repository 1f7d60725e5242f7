//! Rule sets on trial: in force until they are confirmed, or until their time is over.
//!
//! The program goes back by itself. The daemon only has to notice: it then forgets what was tried.

use std::sync::Arc;
use std::time::Duration;

use limiter_common::time::Ticks;
use limiter_datapath::TrialOutcome;

use super::Service;
use super::in_force::Planned;
use crate::api::rules::Changed;
use crate::api::rules::{Document, Trial, TrialEnd};
use crate::control::Refusal;
use crate::error::ServiceError;
use crate::layers::{EffectiveSet, Layers};
use crate::rule_files::Digest;
use crate::state_dir::{APPLIED, Applied, StateError};

/// A rule set on trial, and what it takes to end that.
pub(super) struct Trying {
    /// Layers that were in force before.
    layers: Layers,
    effective: Arc<EffectiveSet>,
    /// Rule files that were tried.
    documents: Vec<Document>,
    /// The rule files that it would replace.
    replaces: Digest,
    end: Ticks,
}

impl Service {
    /// Puts a checked rule set in force for a time.
    pub(super) fn try_out(
        &mut self,
        planned: Planned,
        documents: &[Document],
        replaces: Digest,
        time: Duration,
    ) -> Result<Changed, ServiceError> {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let now = self.datapath()?.now().as_nanos();
        let end = Ticks::from_nanos(now.saturating_add(nanos));
        let (layers, effective) = self.put_in_force(planned, Some(end))?;
        let documents = documents.to_vec();
        self.trial = Some(Trying { layers, effective, documents, replaces, end });
        let time = humantime::format_duration(time);
        tracing::warn!("on trial for {time}: `limiter confirm` keeps these rules");
        self.changed()
    }

    /// Refuses what would change the rules while some are on trial.
    pub(crate) fn not_on_trial(&mut self) -> Result<(), ServiceError> {
        self.settle()?;
        match self.trial {
            Some(_) => Err(ServiceError::OnTrial),
            None => Ok(()),
        }
    }

    /// Notices that a trial is over.
    pub(crate) fn settle(&mut self) -> Result<(), ServiceError> {
        let Some(trial) = &self.trial else { return Ok(()) };
        if self.datapath()?.now() < trial.end {
            return Ok(());
        }
        self.take_back("nobody confirmed them in time")?;
        self.trials.expired += 1;
        Ok(())
    }

    /// Keeps what is on trial.
    pub(crate) fn confirm(&mut self) -> Result<Changed, Refusal> {
        self.settle()?;
        let Some(trial) = &self.trial else {
            return Err(ServiceError::NoTrial.into());
        };
        let replaces = trial.replaces;
        let applied =
            Applied { replaces: replaces.to_string(), documents: trial.documents.clone() };
        // Written before it counts: without room on the disk nothing is confirmed.
        let prepared = self.state.prepare(APPLIED, &serde_json::to_string(&applied)?)?;
        let datapath = self.datapath.as_deref_mut().ok_or(ServiceError::Detached)?;
        match datapath.confirm()? {
            TrialOutcome::Confirmed => {}
            TrialOutcome::Reverted => {
                self.restore("the confirmation came too late");
                self.trials.expired += 1;
                return Err(ServiceError::TooLate.into());
            }
        }
        let before = self.trial.take().map(|trial| trial.layers).unwrap_or_default();
        if let Err(store) = prepared.publish() {
            return Err(self.not_kept(before, store).into());
        }
        self.last_trial = Some(TrialEnd { confirmed: true, reason: None });
        self.trials.confirmed += 1;
        self.seen = replaces;
        tracing::info!("the rules on trial are confirmed");
        Ok(self.changed()?)
    }

    /// Takes back rules that were confirmed and could not be stored: a start would not know of
    /// them.
    fn not_kept(&mut self, before: Layers, store: StateError) -> ServiceError {
        match self.apply(before) {
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

    /// Takes back what is on trial.
    pub(crate) fn revert(&mut self) -> Result<Changed, Refusal> {
        self.settle()?;
        if self.trial.is_none() {
            return Err(ServiceError::NoTrial.into());
        }
        self.take_back("`limiter revert`")?;
        self.trials.reverted += 1;
        Ok(self.changed()?)
    }

    /// The rule set on trial, and for how long.
    pub(crate) fn trial(&self) -> Option<Trial> {
        let trial = self.trial.as_ref()?;
        let now = self.datapath().ok()?.now();
        let nanos = trial.end.as_nanos().saturating_sub(now.as_nanos());
        Some(Trial { seconds_left: nanos.div_ceil(1_000_000_000) })
    }

    fn take_back(&mut self, reason: &str) -> Result<(), ServiceError> {
        let datapath = self.datapath.as_deref_mut().ok_or(ServiceError::Detached)?;
        datapath.revert()?;
        self.restore(reason);
        Ok(())
    }

    /// The data path is as before; so are the rules that are told.
    fn restore(&mut self, reason: &str) {
        if let Some(Trying { layers, effective, .. }) = self.trial.take() {
            self.layers = layers;
            self.effective = effective;
            self.share();
        }
        tracing::warn!("the rules on trial are taken back: {reason}");
        self.last_trial = Some(TrialEnd { confirmed: false, reason: Some(reason.to_owned()) });
    }
}
