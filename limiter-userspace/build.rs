//! Builds the XDP program and embeds it, or a stub where there is no BPF toolchain, so that
//! `cargo check` and editors work on any machine. `cargo xtask` sets up the toolchain and names it
//! in `LIMITER_BPF_TOOLCHAIN`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use aya_build::{Package, Toolchain};

/// What `cargo xtask setup` links Debian's toolchain as.
const DEFAULT_TOOLCHAIN: &str = "limiter-bpf";
const BINARIES: [&str; 5] =
    ["limiter", "limiter-lines", "limiter-test", "limiter-test-lines", "limiter-bench"];

fn main() -> Result<()> {
    let out = PathBuf::from(env::var_os("OUT_DIR").context("OUT_DIR is not set")?);
    // Asked for when it runs: a target directory may have come from another checkout.
    let package = env::var_os("CARGO_MANIFEST_DIR").context("CARGO_MANIFEST_DIR is not set")?;
    let workspace = Path::new(&package).join("..");
    println!("cargo::rerun-if-env-changed=LIMITER_BPF_TOOLCHAIN");
    for path in ["limiter-common/src", "limiter-ebpf", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", workspace.join(path).display());
    }
    if let Some(toolchain) = toolchain() {
        let ebpf = workspace.join("limiter-ebpf");
        // SAFETY: build scripts have one thread at this point. The toolchain needs the first for
        // building `core`; the second keeps aya-build from repeating cargo's progress as warnings;
        // the third keeps the object one unit of code: in many, it has stack and registers that the
        // verifier refuses.
        unsafe {
            env::set_var("RUSTC_BOOTSTRAP", "1");
            env::set_var("CARGO_TERM_QUIET", "true");
            env::set_var("CARGO_INCREMENTAL", "0");
        }
        aya_build::build_ebpf(
            [Package {
                name: "limiter-ebpf",
                root_dir: ebpf.to_str().context("the checkout's path is not UTF-8")?,
                ..Package::default()
            }],
            Toolchain::Custom(&toolchain),
        )?;
    } else {
        println!(
            "cargo::warning=no BPF toolchain: built without the XDP program; run `cargo xtask setup`"
        );
        for name in BINARIES {
            fs::write(out.join(name), [])?;
        }
    }
    println!("cargo::metadata=TEST_OBJECT={}", out.join("limiter-test").display());
    println!("cargo::metadata=TEST_LINES_OBJECT={}", out.join("limiter-test-lines").display());
    println!("cargo::metadata=LINES_OBJECT={}", out.join("limiter-lines").display());
    println!("cargo::metadata=BENCH_OBJECT={}", out.join("limiter-bench").display());
    println!("cargo::metadata=OBJECT={}", out.join("limiter").display());
    Ok(())
}

/// The toolchain to build for BPF with, if there is one and a linker for it.
fn toolchain() -> Option<String> {
    println!("cargo::rerun-if-env-changed=PATH");
    let linker = Command::new("bpf-linker").arg("--version").output().ok()?;
    if !linker.status.success() {
        return None;
    }
    if let Ok(name) = env::var("LIMITER_BPF_TOOLCHAIN") {
        return Some(name);
    }
    let run =
        Command::new("rustup").args(["run", DEFAULT_TOOLCHAIN, "rustc", "--version"]).output();
    run.is_ok_and(|output| output.status.success()).then(|| DEFAULT_TOOLCHAIN.to_owned())
}
