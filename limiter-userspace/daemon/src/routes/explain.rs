//! The request for an explanation of a verdict.

use axum::routing::get;
use limiter_api::explain::{AskExplain, ExplainedNow};
use limiter_rules::source_text;

use super::bans;
use super::sources::source::{Read, SourceText};
use crate::control::{Answer, Asked, JSON, Refusal, Routes, Sliced, Step};
use crate::service::{Call, Service};
use crate::why::{BANS, Question};

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
pub(super) async fn explain(call: Call, Asked(asked): Asked<AskExplain>) -> Answer {
    if asked.is_of_source() {
        return call.sliced(JSON, |service| SourceExplained::begin(service, &asked)).await;
    }
    call.read(|service| outcome(service, &asked)).await
}

/// The explanation of a source without a packet; the source's actual traffic is read beside it.
pub(crate) struct SourceExplained {
    /// `None` once it was reported.
    explained: Option<ExplainedNow>,
    direction: Option<String>,
    source: SourceText,
}

impl SourceExplained {
    pub(crate) fn begin(service: &mut Service, asked: &AskExplain) -> Result<Self, Refusal> {
        let explained = outcome(service, asked)?;
        let source = SourceText::begin(service, &explained.source)?;
        Ok(Self { explained: Some(explained), direction: asked.direction.clone(), source })
    }
}

impl Sliced<Service> for SourceExplained {
    fn step(&mut self, service: &Service) -> Result<Step, Refusal> {
        if self.explained.is_none() {
            return Ok(Step::Done);
        }
        let view = match self.source.go_on(service)? {
            Read::Again => return Ok(Step::Again),
            Read::After(time) => return Ok(Step::After(time)),
            Read::Done(view) => view,
        };
        let direction = self.direction.as_deref();
        let explained =
            self.explained.take().map(|explained| explained.with_drops(view.rows, direction));
        Ok(Step::Part(serde_json::to_vec(&explained)?.into()))
    }
}

/// The program's decision about a packet, with the reason.
pub(crate) fn outcome(service: &mut Service, asked: &AskExplain) -> Result<ExplainedNow, Refusal> {
    let question = Question::parse(asked)?;
    let mut explained = service.in_force()?.explain(&question)?;
    let by = bans::author(service, source_text::parse_one(&explained.source)?)?;
    let bans = explained.steps.iter_mut().find(|step| step.step == BANS);
    if let Some((step, by)) = bans.zip(by) {
        step.says = format!("{} by {by}", step.says);
    }
    let trial_seconds_left =
        service.rule_sets.trial(&service.datapath).map(|trial| trial.seconds_left);
    let dropped_lately = if explained.verdict == "drop" {
        Vec::new()
    } else {
        let of = (explained.source.as_str(), asked.direction.as_deref() == Some("out"));
        let by = (service.datapath()?, service.rule_sets.effective.as_ref());
        service.events.dropped_lately(of, by)
    };
    Ok(ExplainedNow { dropped_lately, trial_seconds_left, ..explained })
}

/// The answer about a source, read at once.
#[cfg(test)]
pub(crate) fn explained(
    service: &mut Service,
    asked: &AskExplain,
) -> Result<ExplainedNow, Refusal> {
    let mut text = SourceExplained::begin(service, asked)?;
    loop {
        if let Step::Part(part) = text.step(service)? {
            return Ok(serde_json::from_slice(&part)?);
        }
    }
}
