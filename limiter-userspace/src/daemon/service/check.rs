//! What would become of a packet: `GET /v1/check`.

use limiter_common::wire::Count;

use super::Service;
use crate::control::api::check::{CheckSource, Checked};
use crate::daemon::error::ServiceError;
use crate::daemon::views::{self, Asked};
use crate::rules::{Selector, source_text};

/// The shortest frame of Ethernet, without its checksum.
const LEAST_FRAME: u64 = 60;

impl Service {
    pub(super) fn try_check(&self, asked: &CheckSource) -> Result<Checked, ServiceError> {
        let address = source_text::parse_address(&asked.address)?;
        let length = asked.length.unwrap_or(LEAST_FRAME);
        let most = Count::Bytes.max_units();
        if length == 0 || length > most {
            return Err(ServiceError::NoFrame { length, most });
        }
        let datapath = self.datapath()?;
        let listed = self.lists.entry(&Selector::address(address), datapath.now());
        views::check(datapath, &self.effective, &Asked { address, length, listed })
    }
}
