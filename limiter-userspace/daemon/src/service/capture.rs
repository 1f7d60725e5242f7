//! Captures of whole packets.

use std::sync::Mutex;
use std::time::Duration;

use super::{Service, lock};
use crate::capture::Captures;

/// Pause between two looks into the ring during a capture.
const LOOK: Duration = Duration::from_millis(10);

impl Service {
    /// Takes the packets that the program has reported; returns false once no capture is running.
    pub(crate) fn take_captured(&mut self) -> bool {
        let Ok(datapath) = self.datapath.get_mut() else {
            self.captures = Captures::default();
            return false;
        };
        self.captures.take(datapath, &self.rule_sets.effective).unwrap_or_else(|error| {
            // The reader sees an end without statistics; the program ends at its deadline.
            tracing::error!(%error, "the capture was cut off");
            self.captures = Captures::default();
            false
        })
    }

    /// Ends the running capture when the daemon ends.
    pub(crate) fn end_capture(&mut self) {
        if let Ok(datapath) = self.datapath.get_mut()
            && let Err(error) = self.captures.end(datapath, &self.rule_sets.effective)
        {
            tracing::error!(%error, "the capture ends by itself within seconds");
        }
    }
}

/// Takes reported packets as long as a capture is running.
pub(crate) async fn read_on(service: std::sync::Arc<Mutex<Service>>) {
    loop {
        tokio::time::sleep(LOOK).await;
        if !lock(&service).take_captured() {
            return;
        }
    }
}
