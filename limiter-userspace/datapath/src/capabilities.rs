//! Drops the privileges that a started daemon does not need.

use std::io;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// Keeps `CAP_BPF` and `CAP_NET_ADMIN` if this process holds them, and drops all other capabilities
/// for good, also for programs that it starts. Call it before there are other threads, because each
/// thread has its own capabilities.
pub(super) fn keep_needed() -> io::Result<()> {
    let held = capabilities(None)?;
    // Kernels without `CAP_BPF` require `CAP_SYS_ADMIN` instead.
    let bpf = if held.permitted.contains(CapabilitySet::BPF) {
        CapabilitySet::BPF
    } else {
        CapabilitySet::SYS_ADMIN
    };
    let kept = held.permitted & (bpf | CapabilitySet::NET_ADMIN);
    // Changing the bounding set needs `CAP_SETPCAP`. Without it, capabilities can grow only through
    // a program with file capabilities, which the last step rules out.
    if held.effective.contains(CapabilitySet::SETPCAP) {
        drop_from_bounding_set(kept)?;
    }
    // Clearing the inheritable capabilities also clears the ambient ones.
    set_capabilities(
        None,
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() },
    )?;
    set_no_new_privs(true)?;
    Ok(())
}

fn drop_from_bounding_set(kept: CapabilitySet) -> io::Result<()> {
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match capability_is_in_bounding_set(capability) {
            Ok(true) if !kept.contains(capability) => {
                remove_capability_from_bounding_set(capability)?;
            }
            Ok(_) => {}
            // The kernel knows no capability beyond this one.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
