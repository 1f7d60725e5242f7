//! From HTTP to the handler and back.

mod check;
pub(super) mod metrics;
mod openapi;
mod sources;

use std::sync::PoisonError;

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

use super::api::bans::Unban;
use super::api::events::AskEvents;
use super::api::lists::{SetList, UnsetList};
use super::api::rules::{ApplyRules, CompareRules, ExportRules};
use super::api::{Brake, ErrorBody, Refusal, SetLimit, UnsetLimit};
use super::follow::{Following, LineBody};
use super::server::{Handler, Shared};

/// Largest request body in bytes: a hundred times what any request needs.
const MAX_BODY: usize = 64 << 10;

/// The same where rule files are sent: 16 MiB, as JSON text at most twice as long.
const MAX_RULES_BODY: usize = (32 << 20) + MAX_BODY;

/// Who asks, and whom the daemon belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    /// The client's user id.
    pub(super) user: u32,
    /// The daemon's user id.
    pub(super) owner: u32,
}

impl Peer {
    const fn may_change(self) -> bool {
        self.user == 0 || self.user == self.owner
    }
}

type Answer = Result<Response, Failure>;

pub(super) fn router(handler: Shared, peer: Peer, following: Following) -> Router {
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
        .layer(Extension(peer))
        .layer(Extension(following))
        .with_state(handler)
}

/// Reading is for whoever may connect, everything else is for the owner.
async fn authorize(Extension(peer): Extension<Peer>, request: Request, next: Next) -> Response {
    if matches!(*request.method(), Method::GET | Method::HEAD) || peer.may_change() {
        return next.run(request).await;
    }
    let Peer { user, owner } = peer;
    let who = if owner == 0 { "root".to_owned() } else { format!("root or user {owner}") };
    let text = format!("user {user} may read but not change: run the command as {who}");
    // A client that is still sending its rule files would not see the answer.
    let mut body = request.into_body();
    while let Some(Ok(_)) = body.frame().await {}
    Failure::from(Refusal::Forbidden(text)).into_response()
}

async fn status(State(handler): State<Shared>) -> Answer {
    with(&handler, |handler| handler.status())
}

async fn limits(State(handler): State<Shared>) -> Answer {
    with(&handler, |handler| handler.limits())
}

async fn set(State(handler): State<Shared>, body: Result<Bytes, BytesRejection>) -> Answer {
    let limit: SetLimit = json(body)?;
    with(&handler, |handler| handler.set(&limit))
}

async fn unset(
    State(handler): State<Shared>,
    query: Result<Query<UnsetLimit>, QueryRejection>,
) -> Answer {
    let Query(limit) = query.map_err(|error| Failure(error.status(), error.body_text()))?;
    with(&handler, |handler| handler.unset(&limit))
}

async fn stats(State(handler): State<Shared>) -> Answer {
    with(&handler, |handler| handler.stats())
}

async fn source(
    State(handler): State<Shared>,
    address: Result<Path<String>, PathRejection>,
) -> Answer {
    let Path(address) = address.map_err(|error| Failure(error.status(), error.body_text()))?;
    with(&handler, |handler| handler.source(&address))
}

async fn lists(State(handler): State<Shared>) -> Answer {
    with(&handler, |handler| handler.lists())
}

async fn list(State(handler): State<Shared>, body: Result<Bytes, BytesRejection>) -> Answer {
    let request: SetList = json(body)?;
    with(&handler, |handler| handler.list(&request))
}

async fn unlist(
    State(handler): State<Shared>,
    query: Result<Query<UnsetList>, QueryRejection>,
) -> Answer {
    let Query(request) = query.map_err(|error| Failure(error.status(), error.body_text()))?;
    with(&handler, |handler| handler.unlist(&request))
}

async fn bans(State(handler): State<Shared>) -> Answer {
    with(&handler, |handler| handler.bans())
}

async fn unban(
    State(handler): State<Shared>,
    query: Result<Query<Unban>, QueryRejection>,
) -> Answer {
    let Query(request) = query.map_err(|error| Failure(error.status(), error.body_text()))?;
    with(&handler, |handler| handler.unban(&request))
}

async fn reload(State(handler): State<Shared>) -> Answer {
    with(&handler, <dyn Handler>::reload)
}

async fn compare(State(handler): State<Shared>, body: Result<Bytes, BytesRejection>) -> Answer {
    let rules: CompareRules = json_within(body, MAX_RULES_BODY)?;
    with(&handler, |handler| handler.compare(&rules))
}

async fn apply_rules(State(handler): State<Shared>, body: Result<Bytes, BytesRejection>) -> Answer {
    let rules: ApplyRules = json_within(body, MAX_RULES_BODY)?;
    with(&handler, |handler| handler.apply_rules(&rules))
}

async fn confirm(State(handler): State<Shared>) -> Answer {
    with(&handler, Handler::confirm)
}

async fn revert(State(handler): State<Shared>) -> Answer {
    with(&handler, Handler::revert)
}

async fn export(
    State(handler): State<Shared>,
    query: Result<Query<ExportRules>, QueryRejection>,
) -> Answer {
    let Query(what) = query.map_err(|error| Failure(error.status(), error.body_text()))?;
    with(&handler, |handler| handler.export(what))
}

async fn events(
    State(handler): State<Shared>,
    Extension(following): Extension<Following>,
    query: Result<Query<AskEvents>, QueryRejection>,
) -> Answer {
    let Query(AskEvents { follow, drops }) =
        query.map_err(|error| Failure(error.status(), error.body_text()))?;
    if !follow {
        return with(&handler, |handler| handler.events());
    }
    let lines = handler.lock().unwrap_or_else(PoisonError::into_inner).follow(drops)?;
    following.set();
    let body = Body::new(LineBody(lines));
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

async fn brake(State(handler): State<Shared>, body: Result<Bytes, BytesRejection>) -> Answer {
    let wanted: Brake = json(body)?;
    with(&handler, |handler| handler.brake(wanted))
}

async fn detach(State(handler): State<Shared>) -> Answer {
    with(&handler, <dyn Handler>::detach)
}

fn with<T: Serialize>(
    handler: &Shared,
    call: impl FnOnce(&mut dyn Handler) -> Result<T, Refusal>,
) -> Answer {
    with_answer(handler, call, |answer| Json(answer).into_response())
}

/// The same for an answer that is more than a document, or another.
fn with_answer<T>(
    handler: &Shared,
    call: impl FnOnce(&mut dyn Handler) -> Result<T, Refusal>,
    response: impl FnOnce(T) -> Response,
) -> Answer {
    // The handler changes its state only after everything that can fail, so it is whole even after
    // a panic in another request.
    let mut handler = handler.lock().unwrap_or_else(PoisonError::into_inner);
    let answer = call(&mut *handler)?;
    drop(handler);
    Ok(response(answer))
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
