//! Proves that a toolchain and bpf-linker fit: bitcode is only readable by an LLVM at least as new
//! as the one that wrote it, and neither version number says which LLVM bpf-linker was built with.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::process;

/// Uses the prebuilt `core` of the host target, so it takes a tenth of a second and not the seconds
/// of building `core` for BPF.
const PROBE: &str = r#"#![no_std]
#[unsafe(no_mangle)]
pub extern "C" fn probe(number: u64) -> u64 { number.wrapping_mul(3) }
"#;

/// Machine number of BPF in an ELF header, `EM_BPF`.
const EM_BPF: u16 = 247;

/// Compiles with the toolchain (a rustup name) and links the result to a BPF object.
pub(super) fn probe(toolchain: &str) -> Result<()> {
    let folder = tempfile::tempdir().context("no temporary folder for the linker probe")?;
    let [source, bitcode, object] =
        ["probe.rs", "probe.bc", "probe.o"].map(|name| folder.path().join(name));
    fs::write(&source, PROBE).with_context(|| format!("writing {}", source.display()))?;
    let mut rustc = process::command("rustup");
    rustc.args(["run", toolchain, "rustc", "--edition=2024", "--crate-type=lib"]);
    rustc.args(["--emit=llvm-bc", "-Copt-level=2", "-Cpanic=abort", "-o"]).arg(&bitcode);
    process::output(rustc.arg(&source))?;
    let mut linker = process::command("bpf-linker");
    linker.args(["--target=bpfel-unknown-none", "--export=probe", "-o"]).arg(&object);
    process::output(linker.arg(&bitcode))?;
    is_bpf(&object)
}

fn is_bpf(object: &Path) -> Result<()> {
    let bytes = fs::read(object).with_context(|| format!("reading {}", object.display()))?;
    match bytes.get(..20) {
        Some([0x7f, b'E', b'L', b'F', .., low, high])
            if u16::from_le_bytes([*low, *high]) == EM_BPF =>
        {
            Ok(())
        }
        _ => bail!("bpf-linker wrote something that is no BPF object"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bpf_object_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("object");
        let mut header = *b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x01\0\xf7\0";
        fs::write(&path, header).unwrap();
        is_bpf(&path).unwrap();
        header[18] = 62; // x86-64
        fs::write(&path, header).unwrap();
        is_bpf(&path).unwrap_err();
        fs::write(&path, b"").unwrap();
        is_bpf(&path).unwrap_err();
        is_bpf(folder.path()).unwrap_err();
    }
}
