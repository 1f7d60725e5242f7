//! Requests, a file for each subject: what is asked and answered, the route, what is done, and how
//! a table shows it.

pub mod bans;
pub mod brake;
pub mod capture;
pub mod check;
pub mod cluster;
pub mod events;
pub mod explain;
pub mod limits;
pub mod lists;
pub(super) mod metrics;
pub mod nearness;
pub(super) mod openapi;
pub(super) mod page;
pub mod rules;
pub mod source;
pub mod sources;
pub mod stats;
pub mod status;
pub mod top;
pub mod words;

use axum::Router;
use limiter_common::wire::Tally;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::service::Service;
use crate::control::Routes;

/// The service, as all connections share it.
pub(super) type Shared = crate::control::Shared<Service>;

/// Packets and bytes (frames from the Ethernet header, without the checksum).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// Frames.
    pub packets: u64,
    /// Bytes of the frames.
    pub bytes: u64,
}

impl From<Tally> for Counts {
    fn from(Tally { packets, bytes }: Tally) -> Self {
        Self { packets, bytes }
    }
}

/// Every path that is served on the socket.
pub(super) fn routes() -> Routes<Service> {
    status::routes()
        .and(limits::routes())
        .and(stats::routes())
        .and(sources::routes())
        .and(source::routes())
        .and(top::routes())
        .and(nearness::routes())
        .and(check::routes())
        .and(explain::routes())
        .and(lists::routes())
        .and(bans::routes())
        .and(events::routes())
        .and(capture::routes())
        .and(rules::routes())
        .and(brake::routes())
        .and(cluster::routes())
        .and(openapi::routes())
        .and(metrics::routes())
        .and(page::routes())
}

/// All that is served on the socket.
pub(super) fn router(service: Shared) -> Router {
    routes().served(service)
}

/// All that is served over TCP for metrics.
pub(super) fn scrapes(service: Shared) -> Router {
    metrics::routes().to_read(service)
}

/// All that is served over TCP for the page, on a port: itself, and the readings that it asks for.
pub(super) fn page(service: Shared, port: u16) -> Router {
    page::routes()
        .and(status::routes())
        .and(top::routes())
        .and(stats::routes())
        .and(source::routes())
        .and(events::routes())
        .and(nearness::routes())
        .to_browsers(service, port)
}
