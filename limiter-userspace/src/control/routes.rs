//! From HTTP to the handler and back.

mod check;
pub(super) mod metrics;
mod openapi;
mod sources;

use axum::body::{Body, Bytes};
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Extension, Path, Query, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use http_body_util::BodyExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::yield_now;

use super::answer::{self, JSON, admit, gone, sliced, whole};
use super::api::bans::Unban;
use super::api::events::AskEvents;
use super::api::lists::{SetList, UnsetList};
use super::api::rules::{ApplyRules, CompareRules, ExportRules, ReloadRules};
use super::api::{Brake, ErrorBody, Refusal, SetLimit, UnsetLimit};
use super::follow::LineBody;
use super::peer::Peer;
use super::server::{Asked, Handler, Shared};

/// Largest request body in bytes: a hundred times what any request needs.
const MAX_BODY: usize = 64 << 10;

/// The same where rule files are sent: 16 MiB, as JSON text at most twice as long.
const MAX_RULES_BODY: usize = (32 << 20) + MAX_BODY;

type Answer = Result<Response, Failure>;

/// All that is served on the socket. A request comes with its [`Peer`] as an extension.
pub(super) fn router(handler: Shared) -> Router {
    Router::new()
        .route("/v1/status", get(status))
        .route("/v1/limits", get(limits).put(set).delete(unset))
        .route("/v1/stats", get(stats))
        .route("/v1/sources", get(sources::sources))
        // An IPv6 source is printed with its length: /v1/sources/2001:db8::/64.
        .route("/v1/sources/{*address}", get(source))
        .route("/v1/top", get(sources::top))
        .route("/v1/openapi.json", get(openapi::openapi))
        .route("/metrics", get(metrics::metrics))
        .route("/v1/check", get(check::check))
        .route("/v1/explain", get(check::explain))
        .route("/v1/lists", get(lists).put(list).delete(unlist))
        .route("/v1/bans", get(bans).delete(unban))
        .route("/v1/events", get(events))
        .route("/v1/reload", post(reload))
        .route(
            "/v1/rules",
            get(export).put(apply_rules).layer(DefaultBodyLimit::max(MAX_RULES_BODY)),
        )
        .route(
            "/v1/rules/diff",
            post(compare).layer(DefaultBodyLimit::max(MAX_RULES_BODY)),
        )
        .route("/v1/rules/confirm", post(confirm))
        .route("/v1/rules/revert", post(revert))
        .route("/v1/brake", put(brake))
        .route("/v1/detach", post(detach))
        .fallback(|request: Request| async move {
            let text = format!(
                "there is no {}: use /v1/ and status, limits, stats, sources, sources/ADDRESS, top, check, explain, lists, bans, events, reload, rules, rules/diff, rules/confirm, rules/revert, brake or detach",
                request.uri().path()
            );
            Failure(StatusCode::NOT_FOUND, text)
        })
        .method_not_allowed_fallback(|request: Request| async move {
            let text = format!("{} does not take {}", request.uri().path(), request.method());
            Failure(StatusCode::METHOD_NOT_ALLOWED, text)
        })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn(authorize))
        .with_state(handler)
}

/// Reading is for whoever may connect, everything else is for the owner.
async fn authorize(Extension(peer): Extension<Peer>, request: Request, next: Next) -> Response {
    if matches!(*request.method(), Method::GET | Method::HEAD) || peer.may_change() {
        return next.run(request).await;
    }
    let Peer { user, owner, .. } = peer;
    let who = if owner == 0 { "root".to_owned() } else { format!("root or user {owner}") };
    let text = format!("user {user} may read but not change: run the command as {who}");
    // A client that is still sending its rule files would not see the answer.
    let mut body = request.into_body();
    let mut most = MAX_RULES_BODY;
    while let Some(Ok(frame)) = body.frame().await {
        // Nobody sends more than this in good faith.
        let Some(left) = most.checked_sub(frame.data_ref().map_or(0, Bytes::len)) else { break };
        most = left;
        yield_now().await;
    }
    Failure::from(Refusal::Forbidden(text)).into_response()
}

async fn status(State(handler): State<Shared>, Extension(peer): Extension<Peer>) -> Answer {
    read(&handler, &peer, |handler| handler.status()).await
}

async fn limits(State(handler): State<Shared>, Extension(peer): Extension<Peer>) -> Answer {
    Ok(sliced(handler, peer, Asked::Limits, JSON).await?)
}

async fn set(
    State(handler): State<Shared>,
    Extension(peer): Extension<Peer>,
    body: Result<Bytes, BytesRejection>,
) -> Answer {
    let limit: SetLimit = json(body)?;
    change(&handler, &peer, |handler| handler.set(&limit))
}

async fn unset(
    State(handler): State<Shared>,
    Extension(peer): Extension<Peer>,
    query: Result<Query<UnsetLimit>, QueryRejection>,
) -> Answer {
    let Query(limit) = query.map_err(|error| Failure(error.status(), error.body_text()))?;
    change(&handler, &peer, |handler| handler.unset(&limit))
}

async fn stats(State(handler): State<Shared>, Extension(peer): Extension<Peer>) -> Answer {
    Ok(sliced(handler, peer, Asked::Stats, JSON).await?)
}

async fn source(
    State(handler): State<Shared>,
    Extension(peer): Extension<Peer>,
    address: Result<Path<String>, PathRejection>,
) -> Answer {
    let Path(address) = address.map_err(|error| Failure(error.status(), error.body_text()))?;
    read(&handler, &peer, |handler| handler.source(&address)).await
}

async fn lists(State(handler): State<Shared>, Extension(peer): Extension<Peer>) -> Answer {
    Ok(sliced(handler, peer, Asked::Lists, JSON).await?)
}

async fn list(
    State(handler): State<Shared>,
    Extension(peer): Extension<Peer>,
    body: Result<Bytes, BytesRejection>,
) -> Answer {
    let request: SetList = json(body)?;
    change(&handler, &peer, |handler| handler.list(&request))
}

async fn unlist(
    State(handler): State<Shared>,
    Extension(peer): Extension<Peer>,
    query: Result<Query<UnsetList>, QueryRejection>,
) -> Answer {
    let Query(request) = query.map_err(|error| Failure(error.status(), error.body_text()))?;
    change(&handler, &peer, |handler| handler.unlist(&request))
}

async fn bans(State(handler): State<Shared>, Extension(peer): Extension<Peer>) -> Answer {
    Ok(sliced(handler, peer, Asked::Bans, JSON).await?)
}

async fn unban(
    State(handler): State<Shared>,
    Extension(peer): Extension<Peer>,
    query: Result<Query<Unban>, QueryRejection>,
) -> Answer {
    let Query(request) = query.map_err(|error| Failure(error.status(), error.body_text()))?;
    change(&handler, &peer, |handler| handler.unban(&request))
}

async fn reload(
    State(handler): State<Shared>,
    Extension(peer): Extension<Peer>,
    query: Result<Query<ReloadRules>, QueryRejection>,
) -> Answer {
    let Query(asked) = query.map_err(|error| Failure(error.status(), error.body_text()))?;
    change(&handler, &peer, |handler| handler.reload_rules(asked))
}

async fn compare(
    State(handler): State<Shared>,
    Extension(peer): Extension<Peer>,
    body: Result<Bytes, BytesRejection>,
) -> Answer {
    let rules: CompareRules = json_within(body, MAX_RULES_BODY)?;
    change(&handler, &peer, |handler| handler.compare(&rules))
}

async fn apply_rules(
    State(handler): State<Shared>,
    Extension(peer): Extension<Peer>,
    body: Result<Bytes, BytesRejection>,
) -> Answer {
    let rules: ApplyRules = json_within(body, MAX_RULES_BODY)?;
    change(&handler, &peer, |handler| handler.apply_rules(&rules))
}

async fn confirm(State(handler): State<Shared>, Extension(peer): Extension<Peer>) -> Answer {
    change(&handler, &peer, Handler::confirm)
}

async fn revert(State(handler): State<Shared>, Extension(peer): Extension<Peer>) -> Answer {
    change(&handler, &peer, Handler::revert)
}

async fn export(
    State(handler): State<Shared>,
    Extension(peer): Extension<Peer>,
    query: Result<Query<ExportRules>, QueryRejection>,
) -> Answer {
    let Query(what) = query.map_err(|error| Failure(error.status(), error.body_text()))?;
    Ok(sliced(handler, peer, Asked::Rules(what), JSON).await?)
}

async fn events(
    State(handler): State<Shared>,
    Extension(peer): Extension<Peer>,
    query: Result<Query<AskEvents>, QueryRejection>,
) -> Answer {
    let Query(AskEvents { follow, drops }) =
        query.map_err(|error| Failure(error.status(), error.body_text()))?;
    if !follow {
        return read(&handler, &peer, |handler| handler.events()).await;
    }
    // Only to begin: whoever follows keeps no turn.
    drop(admit(&peer).await?);
    let (user, first) = (peer.user, peer.may_change());
    let lines = answer::with(&handler, |handler| handler.follow(drops, user, first))?;
    peer.following.set();
    let body = Body::new(LineBody(lines));
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

async fn brake(
    State(handler): State<Shared>,
    Extension(peer): Extension<Peer>,
    body: Result<Bytes, BytesRejection>,
) -> Answer {
    let wanted: Brake = json(body)?;
    change(&handler, &peer, |handler| handler.brake(wanted))
}

async fn detach(State(handler): State<Shared>, Extension(peer): Extension<Peer>) -> Answer {
    change(&handler, &peer, <dyn Handler>::detach)
}

/// Of somebody who reads: after those who change, and a few at a time.
async fn read<T: Serialize>(
    handler: &Shared,
    peer: &Peer,
    call: impl FnOnce(&mut dyn Handler) -> Result<T, Refusal>,
) -> Answer {
    let turn = admit(peer).await?;
    let answer = answer::with(handler, call)?;
    let text = serde_json::to_vec(&answer)
        .map_err(|error| Failure(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(([(CONTENT_TYPE, JSON)], whole(text.into(), turn)).into_response())
}

/// Of somebody who changes something: at once. Nothing is done for a client that has given up: it was told, or
/// has said, that it may not have happened.
fn change<T: Serialize>(
    handler: &Shared,
    peer: &Peer,
    call: impl FnOnce(&mut dyn Handler) -> Result<T, Refusal>,
) -> Answer {
    if peer.is_gone() {
        return Err(gone().into());
    }
    Ok(Json(answer::with(handler, call)?).into_response())
}

/// Takes the body as JSON, whatever content type the client gives it.
fn json<T: DeserializeOwned>(body: Result<Bytes, BytesRejection>) -> Result<T, Failure> {
    json_within(body, MAX_BODY)
}

/// The same of a body of at most `most` bytes, which the route sees to.
fn json_within<T: DeserializeOwned>(
    body: Result<Bytes, BytesRejection>,
    most: usize,
) -> Result<T, Failure> {
    let body = body.map_err(|error| match error.status() {
        status @ StatusCode::PAYLOAD_TOO_LARGE => {
            Failure(status, format!("the body is over {most} bytes: send it in parts"))
        }
        status => Failure(status, error.body_text()),
    })?;
    serde_json::from_slice(&body).map_err(|error| {
        Failure(
            StatusCode::BAD_REQUEST,
            format!("the body is not what this request takes: {error}"),
        )
    })
}

/// An answer that is not a success.
struct Failure(StatusCode, String);

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal {
            Refusal::Invalid(_) => StatusCode::BAD_REQUEST,
            Refusal::Forbidden(_) => StatusCode::FORBIDDEN,
            Refusal::NotFound(_) => StatusCode::NOT_FOUND,
            Refusal::Conflict(_) => StatusCode::CONFLICT,
            Refusal::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, refusal.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, Json(ErrorBody { error: self.1 })).into_response()
    }
}
