//! The request for the last minutes.

use axum::routing::get;
use limiter_api::status::history::{AskHistory, History};

use crate::control::{Answer, Asked, Routes};
use crate::service::{Call, Service};

pub(crate) fn routes() -> Routes<Service> {
    Routes::default().at("/v1/history", get(history))
}

/// The counters of the last ten minutes, and what changed then
#[utoipa::path(
    get,
    path = "/v1/history",
    params(AskHistory),
    responses((status = 200, description = "Done.", body = History))
)]
pub(crate) async fn history(call: Call, Asked(asked): Asked<AskHistory>) -> Answer {
    call.read(|service| {
        let now = service.datapath()?.now().as_nanos();
        Ok(service.gauges.recent.history(asked, now, service.began_at.as_nanos()))
    })
    .await
}
