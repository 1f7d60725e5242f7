//! What the daemon knows, as metrics: `GET /metrics`.

use std::time::UNIX_EPOCH;

use super::Service;
use crate::daemon::error::ServiceError;
use crate::daemon::views::{self, Census, Facts};

impl Service {
    /// The page, with what was read of the rules.
    pub(super) fn try_metrics(&self, census: &Census) -> Result<String, ServiceError> {
        let last_at = self.reloaded_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let facts = Facts {
            reloads: self.reloads,
            last_ok: self.last_reload.ok,
            last_at: last_at.as_secs_f64(),
            lists: self.lists.totals(),
            edits: self.layers.edits.len(),
            trial_seconds_left: self.trial().map(|trial| trial.seconds_left),
            trials: self.trials,
            no_room_for: self.floods.raised(),
        };
        views::metrics(self.datapath()?, census, &facts)
    }
}
