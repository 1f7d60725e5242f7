//! Requests about the limits in force, and about single limits from the command line.

use axum::routing::get;
use limiter_api::limits::{Limits, SetLimit, UnsetLimit};
use limiter_api::rules::Changed;

use crate::control::{Answer, Asked, JSON, JsonBody, Routes};
use crate::control::{Refusal, Sliced, Step};
use crate::service::{Call, Service};
use crate::views::{LimitsText, Reported as _};

pub(super) fn routes() -> Routes<Service> {
    Routes::default().at("/v1/limits", get(list).put(set).delete(unset))
}

/// The rules in force
#[utoipa::path(
    get,
    path = "/v1/limits",
    responses((status = 200, description = "Done.", body = Limits))
)]
pub(super) async fn list(call: Call) -> Answer {
    call.sliced(JSON, |service| LimitsText::begin(service)).await
}

/// Sets a limit
#[utoipa::path(
    put,
    path = "/v1/limits",
    request_body = SetLimit,
    responses((status = 200, description = "Done.", body = Changed))
)]
pub(super) async fn set(call: Call, JsonBody(limit): JsonBody<SetLimit>) -> Answer {
    call.change(|service| {
        let (rule_sets, mut ground) = service.at_rules();
        rule_sets.set(&mut ground, &limit)
    })
}

/// Removes a limit that was set
#[utoipa::path(
    delete,
    path = "/v1/limits",
    params(UnsetLimit),
    responses(
        (status = 200, description = "Done.", body = Changed),
        (status = 404, description = "There is no such thing.")
    )
)]
pub(super) async fn unset(call: Call, Asked(limit): Asked<UnsetLimit>) -> Answer {
    call.change(|service| {
        let (rule_sets, mut ground) = service.at_rules();
        rule_sets.unset(&mut ground, &limit)
    })
}

impl LimitsText {
    pub(crate) fn begin(service: &Service) -> Result<Self, Refusal> {
        service.heap_trim.note();
        Ok(Self::over(service.datapath()?, &service.rule_sets.effective))
    }
}

impl Sliced<Service> for LimitsText {
    fn step(&mut self, service: &Service) -> Result<Step, Refusal> {
        Ok(self.step_of(service.datapath()?, &service.rule_sets.effective)?)
    }
}
