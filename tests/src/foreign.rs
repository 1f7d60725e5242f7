//! An XDP program that is not limiter's, for tests of what limiter does about it.

use std::path::Path;

use anyhow::Result;

use crate::bpf::Xdp;

/// `r0 = 2 (XDP_PASS); exit`
const PASS: [u64; 2] = [0x0000_0002_0000_00b7, 0x0000_0000_0000_0095];

/// Loads a program named `foreign` that passes everything, and pins it at `path` on a BPF file
/// system, from where `ip link set dev X xdp pinned PATH` takes it.
///
/// # Errors
///
/// Without root, or when `path` is not on a BPF file system.
pub fn pin_pass_program(path: &Path) -> Result<()> {
    Xdp::load("foreign", &PASS)?.pin(path)
}
