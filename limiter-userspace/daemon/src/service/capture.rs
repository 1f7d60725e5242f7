//! Captures of whole packets.

use std::sync::Mutex;
use std::time::Duration;

use super::{Service, lock};
use crate::capture::Captures;

/// Pause between two looks into the ring during a capture.
const LOOK: Duration = Duration::from_millis(10);

/// Takes the packets that the program has reported; returns false once no capture is running.
pub(crate) fn take(service: &mut Service) -> bool {
    let Ok(datapath) = service.datapath.get_mut() else {
        service.captures = Captures::default();
        return false;
    };
    service.captures.take(datapath, &service.rule_sets.effective).unwrap_or_else(|error| {
        // The reader sees an end without statistics; the program ends at its deadline.
        tracing::error!(%error, "the capture was cut off");
        service.captures = Captures::default();
        false
    })
}

/// Ends the running capture when the daemon ends.
pub(crate) fn end(service: &mut Service) {
    if let Ok(datapath) = service.datapath.get_mut()
        && let Err(error) = service.captures.end(datapath, &service.rule_sets.effective)
    {
        tracing::error!(%error, "the capture ends by itself within seconds");
    }
}

/// Takes reported packets as long as a capture is running.
pub(crate) async fn read_on(service: std::sync::Arc<Mutex<Service>>) {
    loop {
        tokio::time::sleep(LOOK).await;
        if !take(&mut lock(&service)) {
            return;
        }
    }
}
