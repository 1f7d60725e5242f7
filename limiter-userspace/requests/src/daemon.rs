//! The daemon, as this process knows it: it bans sources and shows what became of requests.

use std::fmt;

use crate::bans::{AskedBan, BanAnswer};
use crate::report::Report;

/// The daemon, asked over its socket. Calls may block for a while.
pub trait Daemon: fmt::Debug + Send + Sync {
    /// Asks for bans: an answer for each, in their order.
    ///
    /// # Errors
    ///
    /// Why none of them was made, with the remedy.
    fn ban(&self, asked: &[AskedBan]) -> Result<Vec<BanAnswer>, String>;

    /// Tells it what became of requests so far.
    ///
    /// # Errors
    ///
    /// Why it did not take that.
    fn report(&self, report: &Report) -> Result<(), NotReported>;
}

/// Why the daemon did not take a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotReported {
    /// There is no daemon, or it does not answer now.
    Away,
    /// It takes no reports of this process: the reason, with the remedy.
    Refused(String),
}
