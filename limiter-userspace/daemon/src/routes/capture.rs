//! Requests about captures: packets as the program judged them.

use axum::routing::post;
use limiter_api::capture::{AskCapture, CaptureReport, Captures, NUMBER};

use crate::control::{Answer, JsonBody, Lines, Refusal, Routes};
use crate::service::capture::read_on;
use crate::service::{Call, Service};

const PCAPNG: &str = "application/x-pcapng";

pub(super) fn routes() -> Routes<Service> {
    Routes::default().at("/v1/capture", post(capture).get(captures).delete(stop))
}

/// Reports packets with their verdict, as pcapng, until it is ended
#[utoipa::path(
    post,
    path = "/v1/capture",
    request_body = AskCapture,
    responses(
        (
            status = 200, description = "The packets as they come.", body = String,
            content_type = "application/x-pcapng"
        ),
        (status = 409, description = "Another capture is under way.")
    )
)]
pub(super) async fn capture(call: Call, JsonBody(asked): JsonBody<AskCapture>) -> Answer {
    let (user, service) = (call.peer.user(), call.service());
    let answer = call.stream(PCAPNG, NUMBER, |service| begin(service, &asked, user))?;
    tokio::spawn(read_on(service));
    Ok(answer)
}

/// The capture under way, and the last one
#[utoipa::path(
    get,
    path = "/v1/capture",
    responses((status = 200, description = "Done.", body = Captures))
)]
pub(super) async fn captures(call: Call) -> Answer {
    call.read(|service| view(service)).await
}

/// Ends the capture under way; asked again, at once
#[utoipa::path(
    delete,
    path = "/v1/capture",
    responses(
        (status = 200, description = "Done.", body = CaptureReport),
        (status = 404, description = "None is under way.")
    )
)]
pub(super) async fn stop(call: Call) -> Answer {
    call.change(end)
}

/// Begins a capture; returns its number and its bytes.
pub(crate) fn begin(
    service: &mut Service,
    asked: &AskCapture,
    user: u32,
) -> Result<(u64, Lines), Refusal> {
    let datapath = service.datapath.get_mut()?;
    Ok(service.captures.begin(datapath, &service.rule_sets.effective, asked, user)?)
}

/// The running capture and the last one.
pub(crate) fn view(service: &Service) -> Result<Captures, Refusal> {
    let (running, last) = service.captures.view(service.datapath()?)?;
    Ok(Captures { running, last })
}

/// Ends the running capture.
pub(crate) fn end(service: &mut Service) -> Result<CaptureReport, Refusal> {
    let datapath = service.datapath.get_mut()?;
    Ok(service.captures.stop(datapath)?)
}
