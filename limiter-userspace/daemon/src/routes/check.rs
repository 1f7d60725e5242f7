//! The request for a check: the only answer that is also reported in headers.

use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use limiter_api::check::{CheckSource, Checked};

use crate::control::{Answer, Asked, Refusal, Routes};
use crate::service::{Call, Service};
use crate::why::Question;

/// Headers as proxies know them (draft-ietf-httpapi-ratelimit-headers up to its fifth version, with
/// the `X-` of its predecessors).
const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");

const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");

const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

pub(super) fn routes() -> Routes<Service> {
    Routes::default().at("/v1/check", get(check))
}

/// The outcome for a packet, or for a source's next one
#[utoipa::path(
    get,
    path = "/v1/check",
    params(CheckSource),
    responses(
        (
            status = 200, description = "It would pass.", body = Checked,
            headers(
                ("x-ratelimit-limit" = u64, description = "What may come at once."),
                ("x-ratelimit-remaining" = u64, description = "What would pass at once now."),
                (
                    "x-ratelimit-reset" = u64,
                    description = "Seconds until all of it is there again."
                )
            )
        ),
        (
            status = 429, description = "It would be dropped.", body = Checked,
            headers(
                ("x-ratelimit-limit" = u64, description = "What may come at once."),
                ("x-ratelimit-remaining" = u64, description = "What would pass at once now."),
                (
                    "x-ratelimit-reset" = u64,
                    description = "Seconds until all of it is there again."
                ),
                ("retry-after" = u64, description = "Seconds until it would pass.")
            )
        )
    )
)]
pub(super) async fn check(call: Call, Asked(asked): Asked<CheckSource>) -> Answer {
    call.respond(|service| Ok(response(outcome(service, &asked)?))).await
}

/// The outcome for a packet of a source.
pub(crate) fn outcome(service: &mut Service, asked: &CheckSource) -> Result<Checked, Refusal> {
    Ok(service.in_force()?.check(&Question::parse(&asked.into())?)?)
}

pub(crate) fn response(checked: Checked) -> Response {
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
