//! `GET /v1/openapi.json`: the description of everything that is served, as it is published in docs/.

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};

/// Written by hand; the tests hold it to the routes and to what they answer.
const DESCRIPTION: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json"));

pub(super) async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], DESCRIPTION).into_response()
}
