//! Tells the tests where the test object is.

fn main() {
    // From limiter-userspace's build script, through its `links` key.
    if let Ok(object) = std::env::var("DEP_LIMITER_EBPF_TEST_OBJECT") {
        println!("cargo::rustc-env=LIMITER_TEST_OBJECT={object}");
    }
}
