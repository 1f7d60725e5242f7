//! The page for a browser.

use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;

use crate::control::{Routes, harden};
use crate::page::PAGE;
use crate::service::Service;

pub(super) fn routes() -> Routes<Service> {
    Routes::default().at("/", get(page))
}

/// The page for a browser: what the requests below answer, live
#[utoipa::path(
    get,
    path = "/",
    responses((
        status = 200, description = "One file, which asks for nothing elsewhere.", body = String,
        content_type = "text/html"
    ))
)]
pub(super) async fn page() -> Response {
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, PAGE.policy.as_str()),
    ];
    let mut response = (headers, PAGE.text.as_str()).into_response();
    harden(response.headers_mut());
    response
}
