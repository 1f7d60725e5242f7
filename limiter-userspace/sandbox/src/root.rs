//! The privilege that tests on real interfaces need.

use rustix::process::geteuid;

/// True if this process is root.
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// Fails the test when it does not run as root, so that it never passes without having run.
///
/// # Panics
///
/// When the effective user is not root.
pub fn require_root() {
    assert!(
        is_root(),
        "this test makes network namespaces and loads BPF programs: run it as root, \
         as `cargo xtask test` does"
    );
}
