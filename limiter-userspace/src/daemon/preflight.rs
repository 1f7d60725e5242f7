//! What can be known of this process before the kernel is touched.

use rustix::thread::{CapabilitySet, capabilities};

use super::datapath::Fault;

/// Why the daemon cannot limit anything.
#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    /// No right to load or attach.
    #[error("no privilege to limit interfaces: run as root, or with CAP_BPF and CAP_NET_ADMIN")]
    NoPrivilege,
    /// The system refused.
    #[error("cannot read this process's capabilities: {0}: check its sandbox")]
    System(std::io::Error),
}

impl From<PreflightError> for Fault {
    fn from(error: PreflightError) -> Self {
        Self::refused(error)
    }
}

/// Whether this process may load programs and attach them.
pub fn privileges() -> Result<(), PreflightError> {
    let held = capabilities(None).map_err(|error| PreflightError::System(error.into()))?.effective;
    let bpf = held.intersects(CapabilitySet::BPF | CapabilitySet::SYS_ADMIN);
    if bpf && held.contains(CapabilitySet::NET_ADMIN) {
        Ok(())
    } else {
        Err(PreflightError::NoPrivilege)
    }
}
