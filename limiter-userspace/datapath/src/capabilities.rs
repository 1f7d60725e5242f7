//! Giving up what a started daemon does not need.

use std::io;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// Keeps `CAP_BPF` and `CAP_NET_ADMIN` of what this process holds, and gives up the rest for good:
/// nothing that it starts can have it either. To be called before there are other threads: each has
/// capabilities of its own.
pub(super) fn keep_needed() -> io::Result<()> {
    let held = capabilities(None)?;
    // Kernels without `CAP_BPF` take `CAP_SYS_ADMIN` for it.
    let bpf = if held.permitted.contains(CapabilitySet::BPF) {
        CapabilitySet::BPF
    } else {
        CapabilitySet::SYS_ADMIN
    };
    let kept = held.permitted & (bpf | CapabilitySet::NET_ADMIN);
    // The bounding set is for anybody who may change it; the capabilities of others grow by nothing
    // but a program with file capabilities, which the last step rules out.
    if held.effective.contains(CapabilitySet::SETPCAP) {
        drop_from_bounding_set(kept)?;
    }
    // Ambient capabilities go with the inheritable ones.
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
            // The kernel knows no further ones.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
