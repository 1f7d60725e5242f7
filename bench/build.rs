//! Builds the programs that limiter is compared with.

use anyhow::Result;
use limiter_ebpf_build::Objects;

const COMPARED: Objects<'_> = Objects {
    package: "limiter-bench-ebpf",
    directory: "bench/ebpf",
    features: &[],
    binaries: &["limiter-bench"],
};

fn main() -> Result<()> {
    limiter_ebpf_build::build("..", &[COMPARED])
}
