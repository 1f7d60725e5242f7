//! Builds the objects of the tests.

use anyhow::Result;
use limiter_ebpf_build::Objects;

const TEST: [Objects<'_>; 2] = [
    Objects {
        package: "limiter-ebpf",
        directory: "limiter-ebpf",
        features: &["test"],
        binaries: &["limiter-test", "limiter-tc-test"],
    },
    Objects {
        package: "limiter-tests-ebpf",
        directory: "tests/ebpf",
        features: &[],
        binaries: &["foreign", "live_frames", "walk"],
    },
];

fn main() -> Result<()> {
    limiter_ebpf_build::build("..", &TEST)
}
