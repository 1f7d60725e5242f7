//! Builds the objects of the tests, and tells the tests where the shipped ones are.

use std::env;

use anyhow::{Context as _, Result};
use limiter_ebpf_build::Objects;

const TEST: [Objects<'_>; 2] = [
    Objects {
        package: "limiter-ebpf",
        directory: "limiter-ebpf",
        features: &["test"],
        binaries: &["limiter-test", "limiter-test-lines"],
    },
    Objects {
        package: "limiter-tests-ebpf",
        directory: "tests/ebpf",
        features: &[],
        binaries: &["foreign", "live_frames", "walk"],
    },
];

fn main() -> Result<()> {
    limiter_ebpf_build::build("..", &TEST)?;
    for name in ["OBJECT", "LINES_OBJECT"] {
        // From limiter-userspace's build script, through its `links` key.
        let object = env::var(format!("DEP_LIMITER_EBPF_{name}"))
            .context("limiter-userspace does not say where its objects are")?;
        println!("cargo::rustc-env=LIMITER_{name}={object}");
    }
    Ok(())
}
