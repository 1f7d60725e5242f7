//! XDP features of a driver, as the kernel reports them: the family `netdev` of Linux 6.3 and
//! later.

use netlink_packet_core::DefaultNla;

use super::Link;
use crate::DatapathError;
use crate::netlink::generic::{ask_family, attribute};

/// `include/uapi/linux/netdev.h`.
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const NETDEV_XDP_ACT_BASIC: u64 = 1;
const NETDEV_XDP_ACT_RX_SG: u64 = 32;

/// Native XDP support of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeMode {
    /// True if the driver runs programs itself.
    pub is_there: bool,
    /// True if it passes multi-buffer frames to programs.
    pub takes_buffers: bool,
}

/// What the interface's driver reports; `None` before Linux 6.3.
pub fn native_mode(link: &Link) -> Result<Option<NativeMode>, DatapathError> {
    let failed = |source| DatapathError::Netlink { interface: link.name.clone(), source };
    let index = DefaultNla::new(NETDEV_A_DEV_IFINDEX, link.index.to_ne_bytes().to_vec());
    let answer = match ask_family("netdev", NETDEV_CMD_DEV_GET, &[index]) {
        Ok(answer) => answer,
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let features = attribute(&answer, NETDEV_A_DEV_XDP_FEATURES).map_err(failed)?;
    let features = features.and_then(|value| value.try_into().ok()).map(u64::from_ne_bytes);
    Ok(features.map(|features| NativeMode {
        is_there: features & NETDEV_XDP_ACT_BASIC != 0,
        takes_buffers: features & NETDEV_XDP_ACT_RX_SG != 0,
    }))
}
