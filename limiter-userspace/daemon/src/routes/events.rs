//! The request for events: episodes of drops, or lines as they come.

use axum::extract::{Extension, State};
use axum::routing::get;

use crate::api::events::{AskEvents, Events};
use crate::control::{Answer, Asked, Lines, Peer, Refusal, Routes, follow, read};
use crate::service::{Service, Shared};

pub(super) fn routes() -> Routes<Service> {
    Routes::default().at("/v1/events", get(events))
}

/// Recent drops, by source, rule and reason; or lines about them as they come
#[utoipa::path(
    get,
    path = "/v1/events",
    params(AskEvents),
    responses(
        (status = 200, description = "Done.", body = Events),
        (status = 409, description = "Too many follow already.")
    )
)]
pub(super) async fn events(
    State(service): State<Shared>,
    Extension(peer): Extension<Peer>,
    Asked(asked): Asked<AskEvents>,
) -> Answer {
    let (user, first) = (peer.user(), peer.may_change());
    if asked.follow {
        return follow(&service, &peer, |service| service.follow(asked.drops, user, first)).await;
    }
    read(&service, &peer, |service| service.events()).await
}

impl Service {
    /// Episodes that go on, and the last that have ended.
    pub(crate) fn events(&self) -> Result<Events, Refusal> {
        Ok(self.events.view(self.datapath()?)?)
    }

    /// Lines as they come, for a user; `first` if that one may change, too.
    pub(crate) fn follow(&mut self, drops: bool, user: u32, first: bool) -> Result<Lines, Refusal> {
        Ok(self.events.follow(drops, user, first)?)
    }
}
