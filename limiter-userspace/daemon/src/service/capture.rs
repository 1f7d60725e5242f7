//! The packets that the program tells whole.

use super::Service;
use crate::capture::Captures;

impl Service {
    /// Takes what the program has told; false once there is no capture.
    pub(crate) fn take_captured(&mut self) -> bool {
        let Some(datapath) = self.datapath.as_deref_mut() else {
            self.captures = Captures::default();
            return false;
        };
        self.captures.take(datapath, &self.effective).unwrap_or_else(|error| {
            // The reader sees an end without statistics; the program ends by its deadline.
            tracing::error!(%error, "the capture was cut off");
            self.captures = Captures::default();
            false
        })
    }

    /// Ends the capture under way with the daemon.
    pub(crate) fn end_capture(&mut self) {
        if let Some(datapath) = self.datapath.as_deref_mut()
            && let Err(error) = self.captures.end(datapath, &self.effective)
        {
            tracing::error!(%error, "the capture ends by itself within seconds");
        }
    }
}
