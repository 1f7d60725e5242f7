//! Privileges of this process, checked before the kernel is touched.

use rustix::thread::{CapabilitySet, capabilities};

use super::DatapathError;

/// Capabilities of this process that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Privileges {
    /// `CAP_BPF`, or `CAP_SYS_ADMIN` in its place.
    pub bpf: bool,
    /// `CAP_NET_ADMIN`.
    pub net_admin: bool,
    /// `CAP_PERFMON`, or `CAP_SYS_ADMIN` in its place: before Linux 6.18 the verifier asks for it.
    pub perfmon: bool,
}

impl Privileges {
    /// Fails if this process may not load and attach programs.
    pub fn check(self) -> Result<(), DatapathError> {
        if self.bpf && self.net_admin { Ok(()) } else { Err(DatapathError::NoPrivilege) }
    }
}

/// The capabilities in effect.
pub fn held() -> Result<Privileges, DatapathError> {
    let held =
        capabilities(None).map_err(|error| DatapathError::Capabilities(error.into()))?.effective;
    let has = |one| held.intersects(one | CapabilitySet::SYS_ADMIN);
    Ok(Privileges {
        bpf: has(CapabilitySet::BPF),
        net_admin: held.contains(CapabilitySet::NET_ADMIN),
        perfmon: has(CapabilitySet::PERFMON),
    })
}
