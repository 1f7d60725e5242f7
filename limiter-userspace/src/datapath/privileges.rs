//! Privileges of this process, looked at before the kernel is touched.

use rustix::thread::{CapabilitySet, capabilities};

use super::DatapathError;

/// Checks that this process may load programs and attach them.
pub(super) fn check() -> Result<(), DatapathError> {
    let held =
        capabilities(None).map_err(|error| DatapathError::Capabilities(error.into()))?.effective;
    let bpf = held.intersects(CapabilitySet::BPF | CapabilitySet::SYS_ADMIN);
    if bpf && held.contains(CapabilitySet::NET_ADMIN) {
        Ok(())
    } else {
        Err(DatapathError::NoPrivilege)
    }
}
