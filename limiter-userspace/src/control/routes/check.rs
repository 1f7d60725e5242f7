//! `GET /v1/check`, the one answer that is told in headers, too, and `GET /v1/explain`.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use super::{Answer, Failure, read};
use crate::control::answer::{admit, with};
use crate::control::api::check::{CheckSource, Checked};
use crate::control::api::explain::AskExplain;
use crate::control::peer::Peer;
use crate::control::server::Shared;

/// As proxies know them (draft-ietf-httpapi-ratelimit-headers up to its fifth version, with the `X-` of
/// those before it).
const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

pub(super) async fn check(
    State(handler): State<Shared>,
    Extension(peer): Extension<Peer>,
    query: Result<Query<CheckSource>, QueryRejection>,
) -> Answer {
    let Query(asked) = query.map_err(|error| Failure(error.status(), error.body_text()))?;
    // A small one: the turn may end before it was taken.
    let _turn = admit(&peer).await?;
    Ok(response(with(&handler, |handler| handler.check(&asked))?))
}

pub(super) async fn explain(
    State(handler): State<Shared>,
    Extension(peer): Extension<Peer>,
    query: Result<Query<AskExplain>, QueryRejection>,
) -> Answer {
    let Query(asked) = query.map_err(|error| Failure(error.status(), error.body_text()))?;
    read(&handler, &peer, |handler| handler.explain(&asked)).await
}

fn response(checked: Checked) -> Response {
    let status = if checked.passes { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS };
    let fields = [
        (LIMIT, checked.limit),
        (REMAINING, checked.remaining),
        (RESET, checked.reset_in_seconds),
        (RETRY_AFTER, checked.retry_after_seconds),
    ];
    let mut response = (status, axum::Json(checked)).into_response();
    for (name, value) in fields {
        if let Some(value) = value {
            response.headers_mut().insert(name, HeaderValue::from(value));
        }
    }
    response
}
