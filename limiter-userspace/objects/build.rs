//! Builds the XDP program, with either source store, to be embedded.

use anyhow::Result;
use limiter_ebpf_build::Objects;

const SHIPPED: Objects<'_> = Objects {
    package: "limiter-ebpf",
    directory: "limiter-ebpf",
    features: &["shipped"],
    binaries: &["limiter", "limiter-lines"],
};

fn main() -> Result<()> {
    limiter_ebpf_build::build("../..", &[SHIPPED])
}
