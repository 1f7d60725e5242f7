//! `GET /metrics`: the one answer that is no JSON.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse as _;
use axum::routing::get;

use super::{Answer, Failure, with_answer};
use crate::control::exposition;
use crate::control::server::Shared;

pub(super) async fn metrics(State(handler): State<Shared>) -> Answer {
    with_answer(
        &handler,
        |handler| handler.metrics(),
        |text| ([(CONTENT_TYPE, exposition::CONTENT_TYPE)], text).into_response(),
    )
}

/// All that is served over TCP.
pub(in crate::control) fn router(handler: Shared) -> Router {
    let nothing = |request: Request| async move {
        let text = format!("there is no {}: use /metrics", request.uri().path());
        Failure(StatusCode::NOT_FOUND, text)
    };
    Router::new().route("/metrics", get(metrics)).fallback(nothing).with_state(handler)
}
