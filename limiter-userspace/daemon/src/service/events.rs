//! The drops that the program reports.

use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::time::Duration;

use super::{Service, lock};
use crate::error::ServiceError;
use crate::events::{EventOptions, Events};
use crate::machine::readable::Readable;

/// Part of a second's events that may come at once: one in `BURSTS`.
const BURSTS: u32 = 4;

/// Name of the step that keeps the log of events.
pub(super) const KEEP_EVENTS: &str = "keep the log of events";

/// Time for which events gather before they are taken.
const GATHER: Duration = Duration::from_millis(50);

impl Service {
    pub(crate) fn take_events(&mut self) {
        if let Ok(datapath) = self.datapath.get_mut() {
            self.events.take(datapath, &self.rule_sets.effective, &self.request_rules);
        }
    }
}

/// Begins to report drops, inside a tokio runtime. Returns a descriptor that becomes readable
/// when there are events.
pub(crate) fn report(
    service: &mut Service,
    options: &EventOptions,
) -> Result<Option<OwnedFd>, ServiceError> {
    service.events = Events::new(options);
    service.events.start_hooks(&options.hooks);
    if options.log_bytes > 0 {
        let directory = service.state.path("");
        let datapath = service.datapath.get()?;
        let begun = service.events.keep_log(datapath, directory, options.log_bytes);
        service.repeated_errors.note(KEEP_EVENTS, &begun);
    }
    let datapath = service.datapath.get_mut()?;
    let burst = options.per_second.and_then(|rate| NonZero::new(rate.get() / BURSTS));
    datapath.set_event_rate(options.per_second, burst.unwrap_or(NonZero::<u32>::MIN))?;
    Ok(datapath.event_descriptor()?)
}

/// Ends the log of events after writing everything reported so far.
pub(crate) fn end_log(service: &mut Service) {
    service.take_events();
    if let Ok(datapath) = service.datapath.get()
        && let Err(error) = service.events.end_log(datapath)
    {
        tracing::warn!(%error, "the last events are not in their log");
    }
}

/// Takes events whenever there are any. Without a descriptor they are only taken during
/// housekeeping.
pub(crate) async fn listen(service: &Mutex<Service>, descriptor: Option<OwnedFd>) {
    let descriptor = match descriptor.map(Readable::new) {
        Some(Ok(descriptor)) => descriptor,
        Some(Err(error)) => {
            tracing::warn!(%error, "events are taken once a second only: check the limit of open files");
            return std::future::pending().await;
        }
        None => return std::future::pending().await,
    };
    loop {
        descriptor.ready().await;
        tokio::time::sleep(GATHER).await;
        lock(service).take_events();
    }
}
