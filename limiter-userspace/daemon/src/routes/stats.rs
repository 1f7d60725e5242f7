//! The request for all counters.

use axum::routing::get;
use limiter_api::stats::Stats;

use crate::control::{Answer, JSON, Routes};
use crate::control::{Refusal, Sliced, Step};
use crate::service::{Call, Service};
use crate::views::{Reported as _, StatsText};

pub(super) fn routes() -> Routes<Service> {
    Routes::default().at("/v1/stats", get(stats))
}

/// All counters
#[utoipa::path(
    get,
    path = "/v1/stats",
    responses((status = 200, description = "Done.", body = Stats))
)]
pub(super) async fn stats(call: Call) -> Answer {
    call.sliced(JSON, |service| StatsText::begin(service)).await
}

impl StatsText {
    pub(crate) fn begin(service: &Service) -> Result<Self, Refusal> {
        service.heap_trim.note();
        Ok(Self::over(service.datapath()?, &service.rule_sets.effective))
    }
}

impl Sliced<Service> for StatsText {
    fn step(&mut self, service: &Service) -> Result<Step, Refusal> {
        Ok(self.step_of(service.datapath()?, &service.rule_sets.effective)?)
    }
}
