//! The request for the state of the cluster.

use axum::routing::get;
use limiter_api::cluster::Cluster;

use crate::cluster::refusals::Refusals;
use crate::control::{Answer, Refusal, Routes};
use crate::service::{Call, Service};
use crate::views;

pub(super) fn routes() -> Routes<Service> {
    Routes::default().at("/v1/cluster", get(cluster))
}

/// Limits that nodes share, and the nodes
#[utoipa::path(
    get,
    path = "/v1/cluster",
    responses(
        (status = 200, description = "Done.", body = Cluster),
        (status = 404, description = "There is no such thing.")
    )
)]
pub(super) async fn cluster(call: Call) -> Answer {
    call.read(|service| view(service)).await
}

/// State of the cluster, as this node sees it.
pub(crate) fn view(service: &Service) -> Result<Cluster, Refusal> {
    let Some(status) = service.cluster.status() else {
        return Err(Refusal::NotFound(
            "this daemon shares nothing with others: start it with `limiter run --cluster FILE`"
                .to_owned(),
        ));
    };
    let refusals = service.cluster.refusals();
    let latest = refusals.iter().flat_map(|refusals| refusals.latest());
    Ok(Cluster {
        refused_changes: refusals.map_or(0, Refusals::count),
        latest_refused: latest.map(|(at, refused)| views::refused_change(at, refused)).collect(),
        warnings: service.cluster.warnings(&service.rule_sets.layers),
        ..views::cluster(&status)
    })
}
