//! Events and their log as metrics.

use limiter_datapath::{Datapath, DatapathError};
use limiter_text::exposition::{Exposition, Kind};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventLog {
    pub(crate) bytes: u64,
    pub(crate) lost: u64,
    pub(crate) is_whole: bool,
}

pub(super) fn metrics(
    page: &mut Exposition,
    datapath: &dyn Datapath,
    log: Option<EventLog>,
) -> Result<(), DatapathError> {
    let counts = datapath.event_counts()?;
    let help = "Drops, and packets that a rule in shadow mode would drop, by what became of their \
                event: reported, over the budget of events, or lost because the ring was full.";
    page.metric("limiter_events_total", Kind::Counter, help)
        .add(&[("event", "reported")], counts.sent)
        .add(&[("event", "over-budget")], counts.over_budget)
        .add(&[("event", "lost")], counts.lost);
    let Some(log) = log else { return Ok(()) };
    page.metric("limiter_event_log_bytes", Kind::Gauge, "Bytes of the log of events on disk.")
        .add(&[], log.bytes);
    let help = "1 while the log of events cannot be written, or something is in its place.";
    page.metric("limiter_event_log_failing", Kind::Gauge, help).add(&[], u8::from(!log.is_whole));
    let help = "Lines of the log of events that were given up since the daemon's start.";
    page.metric("limiter_event_log_lost_total", Kind::Counter, help).add(&[], log.lost);
    Ok(())
}
