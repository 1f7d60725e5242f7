//! The request for the state of the daemon.

pub(crate) mod history;

use axum::extract::{Extension, State};
use axum::routing::get;
use limiter_api::status::Status;

use crate::control::{Answer, Peer, Routes, read};
use crate::service::{Service, Shared};

pub(super) fn routes() -> Routes<Service> {
    Routes::default().at("/v1/status", get(status))
}

/// The daemon, its interfaces, the last reload
#[utoipa::path(
    get,
    path = "/v1/status",
    responses((status = 200, description = "Done.", body = Status))
)]
pub(super) async fn status(
    State(service): State<Shared>,
    Extension(peer): Extension<Peer>,
) -> Answer {
    read(&service, &peer, |service| service.status()).await
}
