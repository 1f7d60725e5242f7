//! What joins packets that arrive or keeps together packets that leave, switched on and off.

use std::process::Command;

use anyhow::Result;

use crate::netns::Netns;

/// An offload.
#[derive(Clone, Copy, Debug)]
pub struct Offload {
    /// As a table has it.
    name: &'static str,
    /// `ethtool -K` has it so.
    option: &'static str,
    /// `ethtool -k` has it so.
    feature: &'static str,
}

/// Of packets that come in.
pub const JOINED: [Offload; 3] = [
    Offload { name: "GRO", option: "gro", feature: "generic-receive-offload" },
    Offload { name: "LRO", option: "lro", feature: "large-receive-offload" },
    Offload { name: "GRO by the card", option: "rx-gro-hw", feature: "rx-gro-hw" },
];

/// Of packets that go out.
pub const KEPT_TOGETHER: [Offload; 2] = [
    Offload { name: "GSO", option: "gso", feature: "generic-segmentation-offload" },
    Offload { name: "TSO", option: "tso", feature: "tcp-segmentation-offload" },
];

/// Switches offloads on or off, as far as the card and what is attached to it let it; returns the
/// names of those that are on.
///
/// # Errors
///
/// Without `ethtool`.
pub fn switched(
    netns: &Netns,
    interface: &str,
    offloads: &[Offload],
    on: bool,
) -> Result<Vec<&'static str>> {
    for offload in offloads {
        let value = if on { "on" } else { "off" };
        // One that cannot be switched stays as it is, which is read below.
        let options = ["-K", interface, offload.option, value];
        drop(netns.output(Command::new("ethtool").args(options))?);
    }
    let features = netns.run("ethtool", ["-k", interface])?;
    let on = offloads.iter().filter(|offload| is_on(&features, offload.feature));
    Ok(on.map(|offload| offload.name).collect())
}

/// In lines as `generic-receive-offload: on` and `rx-gro-hw: off [fixed]`.
fn is_on(features: &str, feature: &str) -> bool {
    let state = features.lines().find_map(|line| line.trim().strip_prefix(feature));
    state.is_some_and(|state| state.starts_with(": on"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_is_read_by_its_whole_name() {
        let features = "Features for dut1:\nrx-checksumming: on\n\trx-gro-hw: on [fixed]\n\
                        rx-gro-list: off\ngeneric-receive-offload: off\n";
        assert!(is_on(features, "rx-gro-hw"));
        assert!(!is_on(features, "rx-gro"));
        assert!(!is_on(features, "generic-receive-offload"));
        assert!(!is_on(features, "large-receive-offload"));
    }
}
