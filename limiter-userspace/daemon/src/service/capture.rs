//! The packets that the program reports whole.

use std::sync::Mutex;
use std::time::Duration;

use super::{Service, lock};
use crate::capture::Captures;

/// Time between two looks into the ring while there is a capture.
const LOOK: Duration = Duration::from_millis(10);

impl Service {
    /// Takes what the program has reported; false once there is no capture.
    pub(crate) fn take_captured(&mut self) -> bool {
        let Ok(datapath) = self.datapath.get_mut() else {
            self.captures = Captures::default();
            return false;
        };
        self.captures.take(datapath, &self.rule_sets.effective).unwrap_or_else(|error| {
            // The reader sees an end without statistics; the program ends by its deadline.
            tracing::error!(%error, "the capture was cut off");
            self.captures = Captures::default();
            false
        })
    }

    /// Ends the capture under way with the daemon.
    pub(crate) fn end_capture(&mut self) {
        if let Ok(datapath) = self.datapath.get_mut()
            && let Err(error) = self.captures.end(datapath, &self.rule_sets.effective)
        {
            tracing::error!(%error, "the capture ends by itself within seconds");
        }
    }
}

/// Takes what the program reports, as long as there is a capture.
pub(crate) async fn read_on(service: std::sync::Arc<Mutex<Service>>) {
    loop {
        tokio::time::sleep(LOOK).await;
        if !lock(&service).take_captured() {
            return;
        }
    }
}
