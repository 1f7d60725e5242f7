//! Routes from paths to calls, and the answers for unknown paths.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Extension, Request};
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::MethodRouter;
use http_body_util::BodyExt as _;
use tokio::task::yield_now;

use super::browser;
use super::peer::Peer;
use super::refusal::{Failure, Refusal};
use super::request::{MAX_BODY, MAX_RULES_BODY};

/// The service that all connections share.
pub type Shared<S> = Arc<Mutex<S>>;

/// Routes to a service of the type `S`.
pub struct Routes<S> {
    router: Router<Shared<S>>,
    paths: Vec<&'static str>,
}

impl<S: Send + 'static> Default for Routes<S> {
    fn default() -> Self {
        Self { router: Router::new(), paths: Vec::new() }
    }
}

impl<S: Send + 'static> Routes<S> {
    /// Adds a path with the handlers of its methods. A request has its [`Peer`] as an extension.
    #[must_use]
    pub fn at(mut self, path: &'static str, methods: MethodRouter<Shared<S>>) -> Self {
        self.paths.push(path);
        Self { router: self.router.route(path, methods), ..self }
    }

    /// Adds a path whose requests may have rule files as their bodies.
    #[must_use]
    pub fn at_rules(self, path: &'static str, methods: MethodRouter<Shared<S>>) -> Self {
        self.at(path, methods.layer(DefaultBodyLimit::max(MAX_RULES_BODY)))
    }

    /// Adds the routes of `others`.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        self.paths.extend(others.paths);
        Self { router: self.router.merge(others.router), ..self }
    }

    /// All paths as they are written for people: `/v1/sources/ADDRESS`.
    pub fn paths(&self) -> Vec<String> {
        let part = |part: &str| match part.strip_prefix('{').and_then(|part| part.strip_suffix('}'))
        {
            Some(name) => name.trim_start_matches('*').to_uppercase(),
            None => part.to_owned(),
        };
        self.paths
            .iter()
            .map(|path| path.split('/').map(part).collect::<Vec<_>>().join("/"))
            .collect()
    }

    /// The router for clients that only read, as over TCP.
    pub fn to_read(self, shared: Shared<S>) -> Router {
        let paths = listed(&self.paths());
        let nothing = |request: Request| async move {
            let text = format!("there is no {}: use {paths}", request.uri().path());
            Failure(StatusCode::NOT_FOUND, text)
        };
        self.router.fallback(nothing).with_state(shared)
    }

    /// The router for peers who may change and others who may only read.
    pub fn served(self, shared: Shared<S>) -> Router {
        self.to_read(shared)
            .method_not_allowed_fallback(|request: Request| async move {
                let text = format!("{} does not take {}", request.uri().path(), request.method());
                Failure(StatusCode::METHOD_NOT_ALLOWED, text)
            })
            .layer(DefaultBodyLimit::max(MAX_BODY))
            .layer(middleware::from_fn(authorize))
            .layer(middleware::from_fn(|request, next| browser::guard(None, request, next)))
    }

    /// The router for browsers alone, over a port of this machine.
    pub fn to_browsers(self, shared: Shared<S>, port: u16) -> Router {
        self.to_read(shared).layer(middleware::from_fn(move |request, next| {
            browser::guard(Some(port), request, next)
        }))
    }
}

/// Formats words as `a, b or c`.
fn listed(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [word] => word.clone(),
        [words @ .., last] => format!("{} or {last}", words.join(", ")),
    }
}

/// Lets anybody who may connect read, and only the owner do everything else.
async fn authorize(Extension(peer): Extension<Peer>, request: Request, next: Next) -> Response {
    if matches!(*request.method(), Method::GET | Method::HEAD) || peer.may_change() {
        return next.run(request).await;
    }
    let Peer { user, owner, .. } = peer;
    let who = if owner == 0 { "root".to_owned() } else { format!("root or user {owner}") };
    let text = format!("user {user} may read but not change: run the command as {who}");
    // A client that is still sending its rule files would not see the answer, so the body is read
    // first.
    let mut body = request.into_body();
    let mut most = MAX_RULES_BODY;
    while let Some(Ok(frame)) = body.frame().await {
        // No honest client sends more than this.
        let Some(left) = most.checked_sub(frame.data_ref().map_or(0, Bytes::len)) else { break };
        most = left;
        yield_now().await;
    }
    Failure::from(Refusal::Forbidden(text)).into_response()
}
