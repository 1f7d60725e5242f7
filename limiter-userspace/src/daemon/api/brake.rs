//! The brake, and the end of all limits.

use axum::extract::{Extension, State};
use axum::routing::{post, put};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Shared;
use crate::control::{Answer, JsonBody, Peer, Refusal, Routes, change};
use crate::daemon::error::ServiceError;
use crate::daemon::service::Service;
use crate::render::{Render, line};

/// `PUT /v1/brake`, and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Brake {
    /// True if every packet passes.
    pub engaged: bool,
}

/// The answer to `POST /v1/detach`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Detached {
    /// Interfaces that are free now.
    pub interfaces: Vec<String>,
}

pub(super) fn routes() -> Routes<Service> {
    Routes::default().at("/v1/brake", put(brake)).at("/v1/detach", post(detach))
}

/// Engages or releases the brake
#[utoipa::path(
    put,
    path = "/v1/brake",
    request_body = Brake,
    responses((status = 200, description = "Done.", body = Brake))
)]
pub(super) async fn brake(
    State(service): State<Shared>,
    Extension(peer): Extension<Peer>,
    JsonBody(wanted): JsonBody<Brake>,
) -> Answer {
    change(&service, &peer, |service| service.brake(wanted))
}

/// Removes program, maps and limits; the daemon ends
#[utoipa::path(
    post,
    path = "/v1/detach",
    responses((status = 200, description = "Done.", body = Detached))
)]
pub(super) async fn detach(
    State(service): State<Shared>,
    Extension(peer): Extension<Peer>,
) -> Answer {
    change(&service, &peer, Service::detach)
}

impl Service {
    /// Lets every packet pass, or no longer.
    pub(in crate::daemon) fn brake(&mut self, brake: Brake) -> Result<Brake, Refusal> {
        let datapath = self.datapath_mut()?;
        datapath.set_brake(brake.engaged)?;
        let engaged = datapath.brake()?;
        tracing::warn!(engaged, "brake");
        Ok(Brake { engaged })
    }

    /// Removes the limits, and ends the daemon.
    pub(in crate::daemon) fn detach(&mut self) -> Result<Detached, Refusal> {
        let datapath = self.datapath.take().ok_or(ServiceError::Detached)?;
        // Without its data path the daemon has nothing more to do, whether this works or not.
        self.stop.notify_one();
        let interfaces = datapath.detach()?;
        tracing::warn!(?interfaces, "detached: nothing is limited any more");
        Ok(Detached { interfaces })
    }
}

impl Render for Brake {
    fn render(&self, text: &mut String) {
        text.push_str(if self.engaged {
            "limits are off: every packet passes until `limiter on`\n"
        } else {
            "limits are on\n"
        });
    }
}

impl Render for Detached {
    fn render(&self, text: &mut String) {
        if self.interfaces.is_empty() {
            text.push_str("detached\n");
        } else {
            line(text, format_args!("detached from {}", self.interfaces.join(", ")));
        }
    }
}
