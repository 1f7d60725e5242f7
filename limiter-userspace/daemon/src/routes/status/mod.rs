//! The request for the state of the daemon.

pub(crate) mod history;

use axum::routing::get;
use limiter_api::status::Status;

use crate::control::{Answer, Routes};
use crate::service::{Call, Service};

pub(super) fn routes() -> Routes<Service> {
    Routes::default().at("/v1/status", get(status))
}

/// The daemon, its interfaces, the last reload
#[utoipa::path(
    get,
    path = "/v1/status",
    responses((status = 200, description = "Done.", body = Status))
)]
pub(super) async fn status(call: Call) -> Answer {
    call.read(|service| service.status()).await
}
