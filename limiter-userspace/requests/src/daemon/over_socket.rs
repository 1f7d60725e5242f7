//! The daemon behind its socket.

use std::time::Duration;

use limiter_api::bans::{RequestBans, SetRequestBans};
use limiter_api::client::{Client, ClientError};
use limiter_api::requests::{ReportRequests, ReportedRequests};

use super::{Daemon, NotReported};

/// The longest wait for the daemon: other bans wait meanwhile, and no request does.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest wait for a report to be taken. There is another one soon.
const PATIENCE_OF_REPORTS: Duration = Duration::from_secs(1);

/// The daemon, asked over its socket.
#[derive(Debug)]
pub struct OverSocket(Client);

impl OverSocket {
    /// The daemon of a client.
    pub fn new(client: &Client) -> Self {
        Self(client.within(PATIENCE))
    }
}

impl Daemon for OverSocket {
    fn ban(&self, asked: &SetRequestBans) -> Result<RequestBans, String> {
        self.0.put("/v1/bans/requests", asked).map_err(|error| error.to_string())
    }

    fn report(&self, report: &ReportRequests) -> Result<(), NotReported> {
        let client = self.0.within(PATIENCE_OF_REPORTS);
        match client.put::<ReportedRequests>("/v1/requests", report) {
            Ok(ReportedRequests { .. }) => Ok(()),
            Err(error) if error.is_failure() => Err(NotReported::Away),
            Err(error @ (ClientError::Refused { .. } | ClientError::Permission(_))) => {
                Err(NotReported::Refused(error.to_string()))
            }
            Err(_) => Err(NotReported::Away),
        }
    }
}
