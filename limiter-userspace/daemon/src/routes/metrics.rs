//! Metrics: the only answer that is not JSON.

use std::time::UNIX_EPOCH;

use axum::routing::get;
use limiter_text::exposition::CONTENT_TYPE;

use crate::cluster::refusals::Refusals;
use crate::control::{Answer, Refusal, Routes, Sliced, Step};
use crate::error::ServiceError;
use crate::lists::bans;
use crate::service::{Call, Service};
use crate::views::{self, Census, EventLog, Facts};

pub(super) fn routes() -> Routes<Service> {
    Routes::default().at("/metrics", get(metrics))
}

/// The counters and the state for Prometheus
#[utoipa::path(
    get,
    path = "/metrics",
    responses((
        status = 200, description = "The text format, version 0.0.4.", body = String,
        content_type = "text/plain"
    ))
)]
pub(super) async fn metrics(call: Call) -> Answer {
    call.sliced(CONTENT_TYPE, |service| MetricsText::begin(service)).await
}

/// The running reading of the counters; `None` once everything was reported.
pub(crate) struct MetricsText(Option<Census>);

impl MetricsText {
    pub(crate) fn begin(service: &Service) -> Result<Self, Refusal> {
        service.heap_trim.note();
        Ok(Self(Some(Census::new(service.datapath()?, &service.rule_sets.effective))))
    }
}

impl Sliced<Service> for MetricsText {
    fn step(&mut self, service: &Service) -> Result<Step, Refusal> {
        let Some(census) = &mut self.0 else { return Ok(Step::Done) };
        if !census.step(service.datapath()?, &service.rule_sets.effective)? {
            return Ok(Step::Again);
        }
        let page = page(service, census)?;
        self.0 = None;
        Ok(Step::Part(page.into_bytes().into()))
    }
}

/// The page of metrics, with the counters read by rule.
fn page(service: &Service, census: &Census) -> Result<String, ServiceError> {
    let last_at = service.rule_sets.reloaded_at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let facts = Facts {
        reloads: service.rule_sets.reloads,
        last_ok: service.rule_sets.last_reload.ok,
        last_at: last_at.as_secs_f64(),
        lists: service.lists.with_store(service.lists.totals()),
        bans: bans::in_force(service.datapath()?)?,
        edits: service.rule_sets.layers.edits.len(),
        changed_on_disk: service.rule_sets.changed_on_disk().map(|on_disk| on_disk.error.is_none()),
        trial_seconds_left: service
            .rule_sets
            .trial(&service.datapath)
            .map(|trial| trial.seconds_left),
        trials: service.rule_sets.trials,
        no_room_for: service.gauges.floods.raised(),
        utilization: service
            .gauges
            .utilization
            .borrow()
            .reported(service.datapath()?, &service.rule_sets.effective)?,
        warnings: service.warnings().len(),
        event_log: service.events.log_health().map(|health| EventLog {
            bytes: health.bytes,
            lost: health.lost,
            is_whole: health.trouble.is_none(),
        }),
        cluster: service.cluster.status(),
        refused_changes: service.cluster.refusals().map_or(0, Refusals::count),
    };
    views::metrics(service.datapath()?, census, &facts)
}
