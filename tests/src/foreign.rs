//! An XDP program that is not limiter's, for tests of what limiter does about it
//! (`tests/ebpf/src/foreign.rs`).

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use aya::EbpfLoader;
use aya::programs::Xdp;

/// The object; empty when it was built without a BPF toolchain.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/foreign"));

/// Loads a program named `foreign` that passes everything, and pins it at `path` on a BPF file
/// system, from where `ip link set dev X xdp pinned PATH` takes it.
///
/// # Errors
///
/// Without root or a BPF toolchain at build time, or when `path` is not on a BPF file system.
pub fn pin_pass_program(path: &Path) -> Result<()> {
    ensure!(!OBJECT.is_empty(), "built without the BPF toolchain: run `cargo xtask setup`");
    let mut ebpf = EbpfLoader::new().load(&crate::program::aligned(OBJECT))?;
    let foreign: &mut Xdp =
        ebpf.program_mut("foreign").context("no program foreign")?.try_into()?;
    foreign.load()?;
    Ok(foreign.pin(path)?)
}
