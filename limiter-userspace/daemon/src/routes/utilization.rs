//! The request for how near sources come to their limits.

use axum::routing::get;
use limiter_api::utilization::Utilization;
use limiter_common::time::Ticks;

use crate::control::{Answer, JSON, Refusal, Routes, Sliced, Step};
use crate::service::{Call, Service};

pub(super) fn routes() -> Routes<Service> {
    Routes::default().at("/v1/utilization", get(utilization))
}

/// How near sources come to the limits in force, and whether these fit
#[utoipa::path(
    get,
    path = "/v1/utilization",
    responses((status = 200, description = "Done.", body = Utilization))
)]
pub(super) async fn utilization(call: Call) -> Answer {
    call.sliced(JSON, |service| UtilizationText::begin(service)).await
}

/// The running reading of all buckets, unless it was just done.
pub(crate) struct UtilizationText {
    asked: Ticks,
    ended: bool,
}

impl UtilizationText {
    pub(crate) fn begin(service: &Service) -> Result<Self, Refusal> {
        let asked = service.datapath()?.now();
        service.heap_trim.note();
        Ok(Self { asked, ended: false })
    }
}

impl Sliced<Service> for UtilizationText {
    fn step(&mut self, service: &Service) -> Result<Step, Refusal> {
        if self.ended {
            return Ok(Step::Done);
        }
        let datapath = service.datapath()?;
        if !service.gauges.utilization.borrow_mut().step(datapath, self.asked)? {
            return Ok(Step::Again);
        }
        self.ended = true;
        let reported =
            service.gauges.utilization.borrow().reported(datapath, &service.rule_sets.effective)?;
        Ok(Step::Part(serde_json::to_vec(&reported)?.into()))
    }
}
