//! `GET /metrics`: the one answer that is no JSON.

use axum::Router;
use axum::extract::{Extension, Request, State};
use axum::http::StatusCode;
use axum::routing::get;

use super::{Answer, Failure};
use crate::control::answer::sliced;
use crate::control::exposition;
use crate::control::peer::Peer;
use crate::control::server::{Asked, Shared};

pub(super) async fn metrics(
    State(handler): State<Shared>,
    Extension(peer): Extension<Peer>,
) -> Answer {
    Ok(sliced(handler, peer, Asked::Metrics, exposition::CONTENT_TYPE).await?)
}

/// All that is served over TCP. A request comes with its [`Peer`] as an extension.
pub(in crate::control) fn router(handler: Shared) -> Router {
    let nothing = |request: Request| async move {
        let text = format!("there is no {}: use /metrics", request.uri().path());
        Failure(StatusCode::NOT_FOUND, text)
    };
    Router::new().route("/metrics", get(metrics)).fallback(nothing).with_state(handler)
}
