//! The brake, and the end of all limits.

use axum::extract::{Extension, State};
use axum::routing::{post, put};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Shared, words};
use crate::control::{Answer, Asked, JsonBody, Peer, Refusal, Routes, change};
use crate::error::ServiceError;
use crate::render::{Render, line};
use crate::service::Service;

/// `PUT /v1/brake`, and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Brake {
    /// True if every packet passes.
    pub engaged: bool,
}

/// The query of `POST /v1/detach`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct AskDetach {
    /// The one interface that is to be free; everything, when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<words::InterfaceName>)]
    pub interface: Option<String>,
}

/// The answer to `POST /v1/detach`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Detached {
    /// Interfaces that are free now.
    pub interfaces: Vec<String>,
    /// True if only these are, and maps, rules and the daemon stay.
    #[serde(default)]
    pub others_stay: bool,
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

/// Removes program, maps and limits; the daemon ends. Or frees one interface
#[utoipa::path(
    post,
    path = "/v1/detach",
    params(AskDetach),
    responses((status = 200, description = "Done.", body = Detached))
)]
pub(super) async fn detach(
    State(service): State<Shared>,
    Extension(peer): Extension<Peer>,
    Asked(asked): Asked<AskDetach>,
) -> Answer {
    change(&service, &peer, |service| match &asked.interface {
        Some(interface) => service.free(interface),
        None => service.detach(),
    })
}

impl Service {
    /// Lets every packet pass, or no longer.
    pub(crate) fn brake(&mut self, brake: Brake) -> Result<Brake, Refusal> {
        let datapath = self.datapath_mut()?;
        datapath.set_brake(brake.engaged)?;
        let engaged = datapath.brake()?;
        tracing::warn!(engaged, "brake");
        Ok(Brake { engaged })
    }

    /// Ends the limits on one interface.
    pub(crate) fn free(&mut self, interface: &str) -> Result<Detached, Refusal> {
        self.datapath_mut()?.free(interface)?;
        self.look_after_links();
        Ok(Detached { interfaces: vec![interface.to_owned()], others_stay: true })
    }

    /// Removes the limits, and ends the daemon.
    pub(crate) fn detach(&mut self) -> Result<Detached, Refusal> {
        let datapath = self.datapath.take().ok_or(ServiceError::Detached)?;
        // Without its data path the daemon has nothing more to do, whether this works or not.
        self.stop.notify_one();
        let interfaces = datapath.detach()?;
        tracing::warn!(?interfaces, "detached: nothing is limited any more");
        Ok(Detached { interfaces, others_stay: false })
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
        if self.others_stay {
            text.push_str(
                "everything else stays; a start of the daemon that names the interface limits it \
                 again\n",
            );
        }
    }
}
