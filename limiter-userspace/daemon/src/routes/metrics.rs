//! Metrics: the only answer that is not JSON.

use std::time::UNIX_EPOCH;

use axum::extract::{Extension, State};
use axum::routing::get;
use limiter_text::exposition::CONTENT_TYPE;

use crate::cluster::refusals::Refusals;
use crate::control::{Answer, Peer, Refusal, Routes, Sliced, Step, sliced};
use crate::error::ServiceError;
use crate::lists::bans;
use crate::service::{Service, Shared};
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
pub(super) async fn metrics(
    State(service): State<Shared>,
    Extension(peer): Extension<Peer>,
) -> Answer {
    sliced(service, peer, CONTENT_TYPE, |service| MetricsText::begin(service)).await
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
        let page = service.page(census)?;
        self.0 = None;
        Ok(Step::Part(page.into_bytes().into()))
    }
}

impl Service {
    /// The page of metrics, with the counters read by rule.
    fn page(&self, census: &Census) -> Result<String, ServiceError> {
        let last_at = self.rule_sets.reloaded_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let facts = Facts {
            reloads: self.rule_sets.reloads,
            last_ok: self.rule_sets.last_reload.ok,
            last_at: last_at.as_secs_f64(),
            lists: self.with_store(self.lists.totals()),
            bans: bans::in_force(self.datapath()?)?,
            edits: self.rule_sets.layers.edits.len(),
            changed_on_disk: self
                .rule_sets
                .changed_on_disk()
                .map(|on_disk| on_disk.error.is_none()),
            trial_seconds_left: self
                .rule_sets
                .trial(&self.datapath)
                .map(|trial| trial.seconds_left),
            trials: self.rule_sets.trials,
            no_room_for: self.gauges.floods.raised(),
            utilization: self
                .gauges
                .utilization
                .borrow()
                .reported(self.datapath()?, &self.rule_sets.effective)?,
            warnings: self.warnings().len(),
            event_log: self.events.log_health().map(|health| EventLog {
                bytes: health.bytes,
                lost: health.lost,
                is_whole: health.trouble.is_none(),
            }),
            cluster: self.cluster.status(),
            refused_changes: self.cluster.refusals().map_or(0, Refusals::count),
        };
        views::metrics(self.datapath()?, census, &facts)
    }
}
