//! Parts of requests: the query, the end of the path, or a document.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::refusal::Failure;

/// Largest request body in bytes: a hundred times the size that any request needs.
pub(super) const MAX_BODY: usize = 64 << 10;

/// Largest request body with rule files in bytes: 16 MiB of files, which as JSON text are at most
/// twice as long.
pub const MAX_RULES_BODY: usize = (32 << 20) + MAX_BODY;

/// The query of a request.
pub struct Asked<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let query = Query::from_request_parts(parts, state).await;
        let Query(asked) = query.map_err(|error| Failure(error.status(), error.body_text()))?;
        Ok(Self(asked))
    }
}

/// The variable part of a request's path.
pub struct Named(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let path = Path::from_request_parts(parts, state).await;
        let Path(name) = path.map_err(|error| Failure(error.status(), error.body_text()))?;
        Ok(Self(name))
    }
}

/// The body of a request as JSON, whatever its content type, of at most `MOST` bytes, which the
/// route enforces.
pub struct JsonBody<T, const MOST: usize = MAX_BODY>(pub T);

impl<T: DeserializeOwned, S: Send + Sync, const MOST: usize> FromRequest<S> for JsonBody<T, MOST> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let body = Bytes::from_request(request, state).await;
        let body = body.map_err(|error| match error.status() {
            status @ StatusCode::PAYLOAD_TOO_LARGE => {
                Failure(status, format!("the body is over {MOST} bytes: send it in parts"))
            }
            status => Failure(status, error.body_text()),
        })?;
        serde_json::from_slice(&body).map(Self).map_err(|error| {
            let text = format!("the body is not what this request takes: {error}");
            Failure(StatusCode::BAD_REQUEST, text)
        })
    }
}
