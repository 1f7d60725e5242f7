//! What would become of a packet: `GET /v1/check` and `GET /v1/explain`.

use super::Service;
use crate::control::api::check::{CheckSource, Checked};
use crate::control::api::explain::{AskExplain, ExplainedNow};
use crate::daemon::error::ServiceError;
use crate::daemon::why::{InForce, Question};

impl Service {
    pub(super) fn try_check(&mut self, asked: &CheckSource) -> Result<Checked, ServiceError> {
        self.in_force()?.check(&Question::parse(&asked.into())?)
    }

    pub(super) fn try_explain(&mut self, asked: &AskExplain) -> Result<ExplainedNow, ServiceError> {
        let question = Question::parse(asked)?;
        let explained = self.in_force()?.explain(&question)?;
        let trial_seconds_left = self.trial().map(|trial| trial.seconds_left);
        Ok(ExplainedNow { trial_seconds_left, ..explained })
    }

    /// What is in force now. A trial that is over is settled first, so that the names are of the rules that
    /// the program uses.
    fn in_force(&mut self) -> Result<InForce<'_>, ServiceError> {
        // Before that: what is over after it, is not over then.
        let now = self.datapath()?.now();
        self.settle()?;
        let (datapath, layers, effective) = (self.datapath()?, &self.layers, &self.effective);
        Ok(InForce { datapath, layers, effective, now })
    }
}
