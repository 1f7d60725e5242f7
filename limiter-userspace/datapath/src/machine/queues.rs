//! Receive queues of an interface, by the `ethtool` family.

use super::Link;
use crate::DatapathError;
use crate::netlink::generic::{ask_ethtool, attribute};

/// `include/uapi/linux/ethtool_netlink.h`.
const ETHTOOL_MSG_CHANNELS_GET: u8 = 17;
const ETHTOOL_A_CHANNELS_RX_MAX: u16 = 2;
const ETHTOOL_A_CHANNELS_COMBINED_MAX: u16 = 5;
const ETHTOOL_A_CHANNELS_RX_COUNT: u16 = 6;
const ETHTOOL_A_CHANNELS_COMBINED_COUNT: u16 = 9;

/// Queues for incoming frames. One CPU at a time serves each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues {
    /// Queues in use.
    pub used: u32,
    /// Largest possible number of queues.
    pub most: u32,
    /// True if each queue serves both directions: `combined` of `ethtool -L`, otherwise `rx`.
    pub is_combined: bool,
}

/// The receive queues of an interface; `None` if the driver does not report them.
pub fn queues(link: &Link) -> Result<Option<Queues>, DatapathError> {
    let failed = |source| DatapathError::Netlink { interface: link.name.clone(), source };
    let answer = match ask_ethtool(ETHTOOL_MSG_CHANNELS_GET, &link.name) {
        Ok(answer) => answer,
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let count = |kind| {
        let value = attribute(&answer, kind).map_err(failed)?;
        Ok(value.and_then(|value| value.try_into().ok()).map_or(0, u32::from_ne_bytes))
    };
    let combined = count(ETHTOOL_A_CHANNELS_COMBINED_MAX)?;
    Ok(Some(Queues {
        used: count(ETHTOOL_A_CHANNELS_RX_COUNT)? + count(ETHTOOL_A_CHANNELS_COMBINED_COUNT)?,
        most: count(ETHTOOL_A_CHANNELS_RX_MAX)? + combined,
        is_combined: combined > 0,
    }))
}
