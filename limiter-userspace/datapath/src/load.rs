//! Loads an object file: yields a program and its maps, new or pinned.

use aya::{Ebpf, EbpfLoader};
use limiter_common::header::Direction;
use limiter_common::wire::{MAX_BUDGETS, MAX_RECORDS, map};
use limiter_rules::place::slots_for;

use super::hooks::hook::Hook;
use super::hooks::programs::refused_or;
use super::sources::source_store::SourceStore;
use super::{DatapathError, Options, PinDir};

/// Returns an object file, in memory aligned to 8 bytes for the ELF reader. Empty if it was built
/// without a BPF toolchain.
pub type Object = fn() -> Vec<u8>;

/// The object files of the programs, one for each kind of hook.
#[derive(Clone, Copy, Debug)]
pub struct Objects {
    /// The program for XDP.
    pub xdp: Object,
    /// The program for tc.
    pub tc: Object,
}

/// The constant that tells the tc program the direction of its packets.
const OUT: &str = "OUT";

/// Loads the object for a hook, with pinned maps, or new ones of the requested sizes.
pub(super) fn load(
    objects: Objects,
    hook: Hook,
    options: &Options,
    source_store: &SourceStore,
    pins: &PinDir,
) -> Result<Ebpf, DatapathError> {
    let out = u32::from(hook == Hook::Tc(Direction::Out));
    let paths: Vec<_> = source_store.maps().map(|name| (name, pins.map(name))).collect();
    let mut loader = EbpfLoader::new();
    loader
        .override_global("AYA_LOG_LEVEL", &options.kernel_log, true)
        .map_max_entries(map::LIMITS, slots_for(options.max_rules))
        .map_max_entries(map::RULE_STATS, options.max_rules)
        .map_max_entries(map::RECORDS, slots_for(options.max_rules).min(MAX_RECORDS))
        .map_max_entries(map::KEYED, options.max_keys)
        .map_max_entries(map::FLOWS, options.max_keys)
        .map_max_entries(map::CPUS, possible_cpus())
        .map_max_entries(map::FRAMES_KEYED, options.max_keys)
        .map_max_entries(map::BUDGETS, MAX_BUDGETS.saturating_add(options.max_rules));
    source_store.report(&mut loader);
    let object = match hook {
        Hook::Xdp => (objects.xdp)(),
        Hook::Tc(_) => {
            loader.override_global(OUT, &out, true);
            (objects.tc)()
        }
    };
    for (name, path) in &paths {
        loader.map_pin_path(name, path);
    }
    let ebpf = loader
        .load(&object)
        .map_err(|error| refused_or(error, |error| DatapathError::Load(Box::new(error))))?;
    for (_, path) in &paths {
        PinDir::restrict(path)?;
    }
    Ok(ebpf)
}

/// The number of possible CPUs; the kernel rejects a larger map.
fn possible_cpus() -> u32 {
    aya::util::nr_cpus().ok().and_then(|cpus| u32::try_from(cpus).ok()).unwrap_or(1)
}

/// Warns that adopted maps keep their size.
pub(super) fn warn_of_size(option: &str, wanted: u32, found: u32) {
    if wanted != found {
        tracing::warn!(
            "{option} {wanted} has no effect: the maps in force were made for {found}; \
             `limiter detach` and a new start make new ones"
        );
    }
}
