//! Checks the kernel features that the program needs before anything is loaded: on a kernel that is
//! too old, the error names the missing ones, where the verifier would say `unknown func`.

use std::fmt;

use aya::maps::MapType;
use aya::programs::ProgramType;
use aya::sys::{BpfHelper, is_helper_supported, is_map_supported, is_program_supported};

use super::DatapathError;

#[derive(Clone, Copy, Debug)]
enum Feature {
    Xdp,
    Map(MapType, &'static str),
    Helper(BpfHelper, &'static str),
}

/// Features that the program and its maps use, with the first Linux version that has them. Atomic
/// compare-and-exchange (5.12) and multi-buffer frames (5.18) cannot be probed; the helpers of 5.18
/// stand in for them.
const NEEDED: [(Feature, &str); 11] = [
    (Feature::Xdp, "4.8"),
    (Feature::Map(MapType::LruHash, "lru_hash"), "4.10"),
    (Feature::Map(MapType::LpmTrie, "lpm_trie"), "4.11"),
    (Feature::Map(MapType::ArrayOfMaps, "array_of_maps"), "4.12"),
    (Feature::Map(MapType::DevMap, "devmap"), "4.14"),
    (Feature::Map(MapType::CpuMap, "cpumap"), "4.15"),
    (Feature::Helper(BpfHelper::BPF_FUNC_sk_lookup_tcp, "bpf_sk_lookup_tcp"), "4.20"),
    (Feature::Map(MapType::RingBuf, "ringbuf"), "5.8"),
    (Feature::Helper(BpfHelper::BPF_FUNC_xdp_get_buff_len, "bpf_xdp_get_buff_len"), "5.18"),
    (Feature::Helper(BpfHelper::BPF_FUNC_xdp_load_bytes, "bpf_xdp_load_bytes"), "5.18"),
    (Feature::Helper(BpfHelper::BPF_FUNC_xdp_store_bytes, "bpf_xdp_store_bytes"), "5.18"),
];

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Xdp => write!(f, "XDP programs"),
            Self::Map(_, name) => write!(f, "the map type {name}"),
            Self::Helper(_, name) => write!(f, "the helper {name} for XDP"),
        }
    }
}

impl Feature {
    /// Whether the running kernel has the feature; `None` if that cannot be found out, for example
    /// without privileges.
    fn is_there(self) -> Option<bool> {
        match self {
            Self::Xdp => is_program_supported(ProgramType::Xdp).ok(),
            Self::Map(kind, _) => is_map_supported(kind).ok(),
            Self::Helper(helper, _) => is_helper_supported(ProgramType::Xdp, helper).ok(),
        }
    }
}

/// What the running kernel offers of the features that the program needs.
#[derive(Debug)]
pub struct Features {
    /// Release of the kernel, by `uname -r`.
    pub release: String,
    /// Features that could not be probed; loading shows whether they are there.
    pub unseen: Vec<String>,
    /// An error if a feature is missing.
    pub checked: Result<(), DatapathError>,
}

pub(super) fn check() -> Result<(), DatapathError> {
    look().checked
}

/// Probes each feature, by loading a small program or making a small map, which is freed at once.
pub fn look() -> Features {
    let system = rustix::system::uname();
    look_with(&system.release().to_string_lossy(), Feature::is_there)
}

fn look_with(release: &str, is_there: impl Fn(Feature) -> Option<bool>) -> Features {
    // A kernel that is temporarily unable to answer may report that a feature is missing, for
    // example by E2BIG or EINVAL. So this counts only if it comes twice.
    let asked = |feature| match is_there(feature) {
        Some(false) => is_there(feature),
        answer => answer,
    };
    let (mut lacking, mut unseen) = (Vec::new(), Vec::new());
    for (feature, since) in NEEDED {
        match asked(feature) {
            Some(true) => {}
            Some(false) => lacking.push(format!("{feature} (from Linux {since} on)")),
            None => unseen.push(feature.to_string()),
        }
    }
    let release = release.to_owned();
    let checked = if lacking.is_empty() {
        Ok(())
    } else {
        Err(DatapathError::OldKernel { release: release.clone(), lacking: lacking.join(", ") })
    };
    Features { release, unseen, checked }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether Linux 5.15 has the feature, as far as this table tells.
    fn of_5_15(feature: Feature) -> bool {
        let is_new = |(needed, since): &(Feature, &str)| {
            *since == "5.18" && needed.to_string() == feature.to_string()
        };
        !NEEDED.iter().any(is_new)
    }

    #[test]
    fn a_kernel_with_everything_is_taken() {
        let all = look_with("6.1.0", |_| Some(true));
        assert!(all.checked.is_ok() && all.unseen.is_empty());
    }

    #[test]
    fn a_feature_that_is_not_seen_is_not_denied() {
        let none = look_with("6.1.0", |_| None);
        assert!(none.checked.is_ok());
        assert_eq!(none.unseen.len(), NEEDED.len());
    }

    /// One failed call, whichever it is, reports no feature as missing.
    #[test]
    fn a_no_that_does_not_stay_denies_no_feature() {
        for failing in 0..NEEDED.len() {
            let asked = std::cell::Cell::new(0);
            let seen = look_with("6.1.0", |_| Some(asked.replace(asked.get() + 1) != failing));
            assert!(seen.checked.is_ok() && seen.unseen.is_empty(), "{seen:?}");
            assert_eq!(asked.get(), NEEDED.len() + 1);
        }
    }

    #[test]
    fn an_old_kernel_is_named_with_what_it_lacks() {
        let error = look_with("5.15.0-91-generic", |it| Some(of_5_15(it)))
            .checked
            .expect_err("5.15 lacks helpers");
        assert!(error.is_refusal());
        let text = error.to_string();
        for part in ["5.15.0-91-generic", "bpf_xdp_get_buff_len", "Linux 5.18", "newer"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("lpm_trie"), "{text}");
    }

    #[test]
    fn everything_that_is_lacking_is_named() {
        let text = look_with("4.4", |_| Some(false)).checked.expect_err("nothing").to_string();
        for (feature, since) in NEEDED {
            assert!(text.contains(&format!("{feature} (from Linux {since} on)")), "{text}");
        }
    }
}
