//! Reports of `limiter serve` about rules for requests, and the answer that shows them.

use std::time::Instant;

use axum::extract::DefaultBodyLimit;
use axum::routing::get;
use limiter_api::requests::{ReportRequests, ReportedRequests, Requests};

use crate::control::{Answer, JsonBody, Routes};
use crate::service::{Call, Service};

/// Most bytes of a report: enough for the longest texts of all its rules.
const MOST_BODY: usize = 4 << 20;

pub(super) fn routes() -> Routes<Service> {
    let methods = get(requests).put(report).layer(DefaultBodyLimit::max(MOST_BODY));
    Routes::default().at("/v1/requests", methods)
}

/// What became of requests, by the rules that `limiter serve` answers by
#[utoipa::path(
    get,
    path = "/v1/requests",
    responses((status = 200, description = "Done.", body = Requests))
)]
pub(super) async fn requests(call: Call) -> Answer {
    call.read(|service| Ok(service.request_reports.list(Instant::now()))).await
}

/// Reports what became of requests
#[utoipa::path(
    put,
    path = "/v1/requests",
    request_body = ReportRequests,
    responses((status = 200, description = "Done.", body = ReportedRequests))
)]
pub(super) async fn report(
    call: Call,
    JsonBody(report): JsonBody<ReportRequests, MOST_BODY>,
) -> Answer {
    call.change(|service| service.request_reports.take(report, Instant::now()))
}
