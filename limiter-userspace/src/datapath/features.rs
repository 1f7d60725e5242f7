//! Features that the program needs of the kernel, asked before anything is loaded: a kernel that is
//! too old is named with the ones that it lacks, where the verifier would say `unknown func`.

use std::fmt;

use aya::maps::MapType;
use aya::programs::ProgramType;
use aya::sys::{BpfHelper, is_helper_supported, is_map_supported, is_program_supported};

use super::DatapathError;

/// Something the kernel has from a version on.
#[derive(Clone, Copy, Debug)]
enum Feature {
    Xdp,
    Map(MapType, &'static str),
    Helper(BpfHelper, &'static str),
}

/// Features that the program and its maps use, with the first Linux that has them. Atomic
/// compare-and-exchange (5.12) and frames in several buffers (5.18) cannot be asked for; the
/// helpers of 5.18 stand for them.
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
    /// True if the running kernel has the feature, or if that cannot be found out, as without
    /// privileges: loading will say.
    fn is_there(self) -> bool {
        match self {
            Self::Xdp => is_program_supported(ProgramType::Xdp).unwrap_or(true),
            Self::Map(kind, _) => is_map_supported(kind).unwrap_or(true),
            Self::Helper(helper, _) => {
                is_helper_supported(ProgramType::Xdp, helper).unwrap_or(true)
            }
        }
    }
}

/// Refuses a kernel that lacks something.
pub(super) fn check() -> Result<(), DatapathError> {
    let system = rustix::system::uname();
    check_with(&system.release().to_string_lossy(), Feature::is_there)
}

fn check_with(release: &str, is_there: impl Fn(Feature) -> bool) -> Result<(), DatapathError> {
    let lacking: Vec<String> = NEEDED
        .iter()
        .filter(|(feature, _)| !is_there(*feature))
        .map(|(feature, since)| format!("{feature} (from Linux {since} on)"))
        .collect();
    if lacking.is_empty() {
        return Ok(());
    }
    Err(DatapathError::OldKernel { release: release.to_owned(), lacking: lacking.join(", ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux 5.15 as far as this table goes.
    fn of_5_15(feature: Feature) -> bool {
        !NEEDED
            .iter()
            .any(|(needed, since)| *since == "5.18" && needed.to_string() == feature.to_string())
    }

    #[test]
    fn a_kernel_with_everything_is_taken() {
        assert!(check_with("6.1.0", |_| true).is_ok());
    }

    #[test]
    fn an_old_kernel_is_named_with_what_it_lacks() {
        let error = check_with("5.15.0-91-generic", of_5_15).expect_err("5.15 lacks helpers");
        assert!(error.is_refusal());
        let text = error.to_string();
        for part in ["5.15.0-91-generic", "bpf_xdp_get_buff_len", "Linux 5.18", "newer"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("lpm_trie"), "{text}");
    }

    #[test]
    fn everything_that_is_lacking_is_named() {
        let text = check_with("4.4", |_| false).expect_err("nothing is there").to_string();
        for (feature, since) in NEEDED {
            assert!(text.contains(&format!("{feature} (from Linux {since} on)")), "{text}");
        }
    }
}
