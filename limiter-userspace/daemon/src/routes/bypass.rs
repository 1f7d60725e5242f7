//! Requests that end the limits: the bypass, and the removal of all limits.

use axum::routing::{post, put};
use limiter_api::bypass::{AskDetach, Bypass, BypassNow, Detached};

use crate::control::{Answer, Asked, JsonBody, Refusal, Routes};
use crate::error::ServiceError;
use crate::lists::UNCHANGED;
use crate::rule_sets::guard::{self, Caller};
use crate::service::{Call, Service};
use crate::views;

pub(super) fn routes() -> Routes<Service> {
    Routes::default().at("/v1/bypass", put(bypass)).at("/v1/detach", post(detach))
}

/// Turns the bypass on or off
#[utoipa::path(
    put,
    path = "/v1/bypass",
    request_body = Bypass,
    responses((status = 200, description = "Done.", body = BypassNow))
)]
pub(super) async fn bypass(call: Call, JsonBody(wanted): JsonBody<Bypass>) -> Answer {
    call.change(|service| set(service, wanted))
}

/// Removes program, maps and limits; the daemon ends. Or frees one interface
#[utoipa::path(
    post,
    path = "/v1/detach",
    params(AskDetach),
    responses((status = 200, description = "Done.", body = Detached))
)]
pub(super) async fn detach(call: Call, Asked(asked): Asked<AskDetach>) -> Answer {
    call.change(|service| match &asked.interface {
        Some(interface) => free(service, interface),
        None => end(service),
    })
}

/// Lets every packet pass, or stops doing so.
pub(crate) fn set(service: &mut Service, bypass: Bypass) -> Result<BypassNow, Refusal> {
    let is_on_again = !bypass.engaged && service.datapath()?.bypass()?;
    if is_on_again && bypass.session.is_some() {
        service.settle()?;
        let caller = Caller { session: bypass.session, force: bypass.force };
        let scene = service.scene(&UNCHANGED)?;
        caller.authorize(guard::objection_to_present(scene, caller.session.as_ref()))?;
    }
    let datapath = service.datapath.get_mut()?;
    datapath.set_bypass(bypass.engaged)?;
    let engaged = datapath.bypass()?;
    let then = datapath.then().map(views::then_program);
    match &then {
        Some(then) if engaged => tracing::warn!(engaged, "bypass; {}", then.goes_on()),
        _ => tracing::warn!(engaged, "bypass"),
    }
    Ok(BypassNow { engaged, then })
}

/// Ends the limits on one interface.
pub(crate) fn free(service: &mut Service, interface: &str) -> Result<Detached, Refusal> {
    service.datapath.get_mut()?.free(interface)?;
    service.look_after_links();
    Ok(Detached { interfaces: vec![interface.to_owned()], others_stay: true })
}

/// Removes the limits, and ends the daemon.
pub(crate) fn end(service: &mut Service) -> Result<Detached, Refusal> {
    let datapath = service.datapath.take().ok_or(ServiceError::Detached)?;
    // Without its data path the daemon has nothing left to do, whether this works or not.
    service.stop.notify_one();
    let interfaces = datapath.detach()?;
    tracing::warn!(?interfaces, "detached: nothing is limited any more");
    Ok(Detached { interfaces, others_stay: false })
}
