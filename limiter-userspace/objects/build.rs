//! Builds the XDP program, with either source store, to be embedded.

use std::env;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use limiter_ebpf_build::Objects;

const SHIPPED: Objects<'_> = Objects {
    package: "limiter-ebpf",
    directory: "limiter-ebpf",
    features: &["shipped"],
    binaries: &["limiter", "limiter-lines"],
};

fn main() -> Result<()> {
    limiter_ebpf_build::build("../..", &[SHIPPED])?;
    let out = PathBuf::from(env::var_os("OUT_DIR").context("OUT_DIR is not set")?);
    println!("cargo::metadata=OBJECT={}", out.join("limiter").display());
    println!("cargo::metadata=LINES_OBJECT={}", out.join("limiter-lines").display());
    Ok(())
}
