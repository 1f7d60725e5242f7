//! The request for events: episodes of drops, or lines as they occur.

use std::time::Duration;

use axum::routing::get;
use limiter_api::events::{AskEvents, Events};

use crate::control::{Answer, Asked, JSON, Refusal, Routes, Sliced, Step};
use crate::events::Search;
use crate::events::filter::Filter;
use crate::service::{Call, Service};

pub(super) fn routes() -> Routes<Service> {
    Routes::default().at("/v1/events", get(events))
}

/// Drops by source, rule and reason: recent ones; those of a source, a rule or a time, from the log
/// on disk; or lines about them as they come
#[utoipa::path(
    get,
    path = "/v1/events",
    params(AskEvents),
    responses(
        (status = 200, description = "Done.", body = Events),
        (status = 409, description = "Too many follow already.")
    )
)]
pub(super) async fn events(call: Call, Asked(asked): Asked<AskEvents>) -> Answer {
    let (user, first) = (call.peer.user(), call.peer.may_change());
    let filter = Filter::of(&asked).map_err(Refusal::from)?;
    if asked.follow {
        let filter = filter.unwrap_or_default();
        let begin =
            |service: &mut Service| Ok(service.events.follow(asked.drops, filter, user, first)?);
        return call.follow(begin).await;
    }
    if let Some(filter) = filter {
        return call.sliced(JSON, |service| EventsText::begin(service, &filter)).await;
    }
    call.read(|service| Ok(service.events.view(service.datapath()?)?)).await
}

/// Pause between two checks whether the log was read.
const LOOK: Duration = Duration::from_millis(20);

/// The running search of the log; `None` once everything was reported.
pub(crate) struct EventsText(Option<Search>);

impl EventsText {
    pub(crate) fn begin(service: &Service, filter: &Filter) -> Result<Self, Refusal> {
        Ok(Self(Some(service.events.search(filter, service.datapath()?)?)))
    }
}

impl Sliced<Service> for EventsText {
    fn step(&mut self, service: &Service) -> Result<Step, Refusal> {
        let Some(search) = &mut self.0 else { return Ok(Step::Done) };
        let Some(found) = search.step() else { return Ok(Step::After(LOOK)) };
        let (found, live) = found?;
        self.0 = None;
        let events =
            service.events.found(found, live, service.datapath()?, &service.rule_sets.effective)?;
        Ok(Step::Part(serde_json::to_vec(&events)?.into()))
    }
}
