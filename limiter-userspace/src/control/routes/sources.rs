//! `GET /v1/sources` and `GET /v1/top`.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State};

use super::{Answer, Failure, read};
use crate::control::answer::{JSON, sliced};
use crate::control::api::sources::{AskSources, AskTop};
use crate::control::peer::Peer;
use crate::control::server::{Asked, Shared};

pub(super) async fn sources(
    State(handler): State<Shared>,
    Extension(peer): Extension<Peer>,
    query: Result<Query<AskSources>, QueryRejection>,
) -> Answer {
    let Query(asked) = query.map_err(|error| Failure(error.status(), error.body_text()))?;
    Ok(sliced(handler, peer, Asked::Sources(asked), JSON).await?)
}

pub(super) async fn top(
    State(handler): State<Shared>,
    Extension(peer): Extension<Peer>,
    query: Result<Query<AskTop>, QueryRejection>,
) -> Answer {
    let Query(asked) = query.map_err(|error| Failure(error.status(), error.body_text()))?;
    read(&handler, &peer, |handler| handler.top(&asked)).await
}
