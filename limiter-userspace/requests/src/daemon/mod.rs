//! The daemon, as this process knows it: it bans sources and shows what became of requests.

pub(crate) mod bans;
pub(crate) mod over_socket;
pub(crate) mod report;

use std::fmt;
use std::time::Duration;

use limiter_api::bans::{RequestBans, SetRequestBans};
use limiter_api::requests::ReportRequests;

/// Bytes of the keys and values of a rule, and of its domain.
const MOST_TEXT: usize = 300;

/// The daemon, asked over its socket. Calls may block for a while.
pub trait Daemon: fmt::Debug + Send + Sync {
    /// Asks for bans: an answer for each, in their order.
    ///
    /// # Errors
    ///
    /// Why none of them was made, with the remedy.
    fn ban(&self, asked: &SetRequestBans) -> Result<RequestBans, String>;

    /// Tells it what became of requests so far.
    ///
    /// # Errors
    ///
    /// Why it did not take that.
    fn report(&self, report: &ReportRequests) -> Result<(), NotReported>;
}

/// Why the daemon did not take a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotReported {
    /// There is no daemon, or it does not answer now.
    Away,
    /// It takes no reports of this process: the reason, with the remedy.
    Refused(String),
}

/// The first bytes of a text.
pub(crate) fn bounded(text: &str) -> String {
    text.get(..text.floor_char_boundary(MOST_TEXT)).unwrap_or_default().to_owned()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
