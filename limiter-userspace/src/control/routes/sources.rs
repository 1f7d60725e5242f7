//! `GET /v1/sources` and `GET /v1/top`. All sources are read in slices, and other requests have their turn
//! in between.

use std::sync::PoisonError;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::IntoResponse as _;

use super::{Answer, Failure, with};
use crate::control::api::sources::{AskSources, AskTop};
use crate::control::server::{Shared, Step};

pub(super) async fn sources(
    State(handler): State<Shared>,
    query: Result<Query<AskSources>, QueryRejection>,
) -> Answer {
    let Query(asked) = query.map_err(|error| Failure(error.status(), error.body_text()))?;
    let mut slices = handler.lock().unwrap_or_else(PoisonError::into_inner).sources(&asked)?;
    loop {
        // In a statement of its own: the handler must not stay locked.
        let step =
            handler.lock().unwrap_or_else(PoisonError::into_inner).read_sources(&mut slices)?;
        match step {
            Step::Again => tokio::task::yield_now().await,
            Step::After(time) => tokio::time::sleep(time).await,
            Step::Done(list) => return Ok(Json(list).into_response()),
        }
    }
}

pub(super) async fn top(
    State(handler): State<Shared>,
    query: Result<Query<AskTop>, QueryRejection>,
) -> Answer {
    let Query(asked) = query.map_err(|error| Failure(error.status(), error.body_text()))?;
    with(&handler, |handler| handler.top(&asked))
}
