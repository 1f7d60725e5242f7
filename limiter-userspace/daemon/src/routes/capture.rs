//! Requests about captures: packets as the program judged them.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::routing::post;
use limiter_api::capture::{AskCapture, CaptureReport, Captures, NUMBER};

use crate::control::{Answer, JsonBody, Lines, Peer, Refusal, Routes, change, read, stream};
use crate::service::capture::read_on;
use crate::service::{Service, Shared};

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
pub(super) async fn capture(
    State(service): State<Shared>,
    Extension(peer): Extension<Peer>,
    JsonBody(asked): JsonBody<AskCapture>,
) -> Answer {
    let user = peer.user();
    let begin = |service: &mut Service| begin(service, &asked, user);
    let answer = stream(&service, &peer, PCAPNG, NUMBER, begin)?;
    tokio::spawn(read_on(Arc::clone(&service)));
    Ok(answer)
}

/// The capture under way, and the last one
#[utoipa::path(
    get,
    path = "/v1/capture",
    responses((status = 200, description = "Done.", body = Captures))
)]
pub(super) async fn captures(
    State(service): State<Shared>,
    Extension(peer): Extension<Peer>,
) -> Answer {
    read(&service, &peer, |service| view(service)).await
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
pub(super) async fn stop(
    State(service): State<Shared>,
    Extension(peer): Extension<Peer>,
) -> Answer {
    change(&service, &peer, end)
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
