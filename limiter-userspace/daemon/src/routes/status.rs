//! The request for the state of the daemon.

use axum::extract::{Extension, State};
use axum::routing::get;

use crate::api::status::{Interface, Sources, Status};
use crate::control::{Answer, Peer, Refusal, Routes, read};
use crate::service::Service;
use crate::service::Shared;
use crate::warnings;

pub(super) fn routes() -> Routes<Service> {
    Routes::default().at("/v1/status", get(status))
}

/// The daemon, its interfaces, the last reload
#[utoipa::path(
    get,
    path = "/v1/status",
    responses((status = 200, description = "Done.", body = Status))
)]
pub(super) async fn status(
    State(service): State<Shared>,
    Extension(peer): Extension<Peer>,
) -> Answer {
    read(&service, &peer, |service| service.status()).await
}

impl Service {
    /// State of the daemon.
    pub(crate) fn status(&self) -> Result<Status, Refusal> {
        let (datapath, layers) = (self.datapath()?, &self.layers);
        let trial = self.trial();
        let mut warnings = self.effective.warnings.clone();
        warnings.extend(self.not_ip.warning());
        warnings.extend(warnings::of_management(layers));
        warnings.extend(self.cluster_warnings());
        Ok(Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            generation: datapath.generation(),
            rules: self.effective.rules.len(),
            brake: datapath.brake()?,
            interfaces: datapath.attachments().iter().map(Interface::from).collect(),
            sources: Sources { max_v4: datapath.max_sources(), max_v6: datapath.max_sources() },
            rules_files: self.paths.iter().map(|path| path.display().to_string()).collect(),
            pin_dir: self.pin_dir.as_ref().map(|path| path.display().to_string()),
            edits: layers.edits.len(),
            management: layers.management.keys().map(ToString::to_string).collect(),
            warnings,
            over_soft_limit: self.alarms.raised(),
            no_room_for: self.floods.raised(),
            too_tight: self.nearness.borrow().too_tight(datapath, &self.effective)?,
            last_reload: self.last_reload.clone(),
            applied: layers.applied && trial.is_none(),
            reloads: self.reloads,
            watch: self.watch,
            trial,
            last_trial: self.last_trial.clone(),
        })
    }
}
