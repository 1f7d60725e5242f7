//! Requests, one file for each subject: the route and its implementation.

pub(super) mod bans;
pub(super) mod bypass;
pub(super) mod capture;
pub(super) mod check;
pub(super) mod cluster;
pub(super) mod events;
pub(super) mod explain;
pub(super) mod limits;
pub(super) mod lists;
pub(super) mod metrics;
pub(super) mod openapi;
#[cfg(feature = "page")]
pub(super) mod page;
pub(super) mod requests;
pub(super) mod rules;
pub(super) mod sources;
pub(super) mod stats;
pub(super) mod status;
pub(super) mod utilization;

use axum::Router;

use crate::control::Routes;
use crate::service::{Service, Shared};

/// Every path that is served on the socket.
pub(super) fn routes() -> Routes<Service> {
    let routes = status::routes()
        .and(limits::routes())
        .and(stats::routes())
        .and(sources::routes())
        .and(sources::source::routes())
        .and(sources::top::routes())
        .and(status::history::routes())
        .and(utilization::routes())
        .and(check::routes())
        .and(explain::routes())
        .and(lists::routes())
        .and(bans::routes())
        .and(bans::request_bans::routes())
        .and(requests::routes())
        .and(events::routes())
        .and(capture::routes())
        .and(rules::routes())
        .and(bypass::routes())
        .and(cluster::routes())
        .and(openapi::routes())
        .and(metrics::routes());
    #[cfg(feature = "page")]
    let routes = routes.and(page::routes());
    routes
}

/// Router of everything served on the socket.
pub(super) fn router(service: Shared) -> Router {
    routes().served(service)
}

/// Router of everything served over TCP for metrics.
pub(super) fn scrapes(service: Shared) -> Router {
    metrics::routes().to_read(service)
}

/// Router of everything served over TCP for the page on a port: the page itself, and the readings
/// that it requests.
#[cfg(feature = "page")]
pub(super) fn page(service: Shared, port: u16) -> Router {
    page::routes()
        .and(status::routes())
        .and(sources::top::routes())
        .and(status::history::routes())
        .and(stats::routes())
        .and(sources::source::routes())
        .and(events::routes())
        .and(utilization::routes())
        .and(requests::routes())
        .to_browsers(service, port)
}
