//! The request for an explanation of a verdict.

use axum::extract::{Extension, State};
use axum::routing::get;
use limiter_rules::source_text;

use crate::api::explain::{AskExplain, ExplainedNow};
use crate::control::{Answer, Asked, Peer, Refusal, Routes, read};
use crate::error::ServiceError;
use crate::service::{Service, Shared};
use crate::why::{BANS, InForce, Question};

pub(super) fn routes() -> Routes<Service> {
    Routes::default().at("/v1/explain", get(explain))
}

/// The outcome for a packet now, and why
#[utoipa::path(
    get,
    path = "/v1/explain",
    params(AskExplain),
    responses((status = 200, description = "The verdict is inside.", body = ExplainedNow))
)]
pub(super) async fn explain(
    State(service): State<Shared>,
    Extension(peer): Extension<Peer>,
    Asked(asked): Asked<AskExplain>,
) -> Answer {
    read(&service, &peer, |service| service.explain(&asked)).await
}

impl Service {
    /// The program's decision about a packet, and why.
    pub(crate) fn explain(&mut self, asked: &AskExplain) -> Result<ExplainedNow, Refusal> {
        let question = Question::parse(asked)?;
        let mut explained = self.in_force()?.explain(&question)?;
        let by = self.banned_by(source_text::parse_one(&explained.source)?)?;
        let bans = explained.steps.iter_mut().find(|step| step.step == BANS);
        if let Some((step, by)) = bans.zip(by) {
            step.says = format!("{} by {by}", step.says);
        }
        let trial_seconds_left =
            self.rule_sets.trial(&self.datapath).map(|trial| trial.seconds_left);
        let dropped_lately = match explained.verdict.as_str() {
            "drop" => Vec::new(),
            _ => self.events.dropped_lately(&explained.source, self.datapath()?),
        };
        Ok(ExplainedNow { dropped_lately, trial_seconds_left, ..explained })
    }

    /// The state in force now. A trial that is over is settled first, so that the names are of the
    /// rules that the program uses.
    pub(super) fn in_force(&mut self) -> Result<InForce<'_>, ServiceError> {
        // Before that: what is over after it, is not over then.
        let now = self.datapath()?.now();
        self.settle()?;
        let (datapath, layers, effective) =
            (self.datapath()?, &self.rule_sets.layers, &self.rule_sets.effective);
        Ok(InForce { datapath, layers, effective, lists: &self.lists, now })
    }
}
