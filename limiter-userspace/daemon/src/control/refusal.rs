//! Answers that are not a success.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use limiter_api::ErrorBody;

/// Reason why a request is refused; the HTTP status follows from it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// 400: the request itself is wrong.
    #[error("{0}")]
    Invalid(String),
    /// 403: the object belongs to another user.
    #[error("{0}")]
    Forbidden(String),
    /// 404: no such object.
    #[error("{0}")]
    NotFound(String),
    /// 409: not possible in this state.
    #[error("{0}")]
    Conflict(String),
    /// 500: the daemon or the kernel failed.
    #[error("{0}")]
    Failed(String),
}

/// Status and text of an error answer: from a [`Refusal`], or from HTTP itself.
#[derive(Debug)]
pub struct Failure(pub(super) StatusCode, pub(super) String);

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
