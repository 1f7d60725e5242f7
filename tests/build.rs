//! Tells the tests where the objects are: the shipped ones, those of the test program, and that of the benchmark.

fn main() {
    // From limiter-userspace's build script, through its `links` key.
    if let Ok(object) = std::env::var("DEP_LIMITER_EBPF_TEST_OBJECT") {
        println!("cargo::rustc-env=LIMITER_TEST_OBJECT={object}");
    }
    if let Ok(object) = std::env::var("DEP_LIMITER_EBPF_TEST_LINES_OBJECT") {
        println!("cargo::rustc-env=LIMITER_TEST_LINES_OBJECT={object}");
    }
    if let Ok(object) = std::env::var("DEP_LIMITER_EBPF_LINES_OBJECT") {
        println!("cargo::rustc-env=LIMITER_LINES_OBJECT={object}");
    }
    if let Ok(object) = std::env::var("DEP_LIMITER_EBPF_BENCH_OBJECT") {
        println!("cargo::rustc-env=LIMITER_BENCH_OBJECT={object}");
    }
    if let Ok(object) = std::env::var("DEP_LIMITER_EBPF_OBJECT") {
        println!("cargo::rustc-env=LIMITER_OBJECT={object}");
    }
}
