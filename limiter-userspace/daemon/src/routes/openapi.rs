//! The description of the whole interface, as published in docs/.

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;

use crate::control::{JSON, Routes};
use crate::service::Service;

/// The committed file; a test compares it with the types and the routes.
const DESCRIPTION: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json"));

pub(super) fn routes() -> Routes<Service> {
    Routes::default().at("/v1/openapi.json", get(openapi))
}

/// This description
#[utoipa::path(
    get,
    path = "/v1/openapi.json",
    responses((
        status = 200, description = "It.", body = Object, content_type = "application/json"
    ))
)]
pub(super) async fn openapi() -> Response {
    ([(CONTENT_TYPE, JSON)], DESCRIPTION).into_response()
}
