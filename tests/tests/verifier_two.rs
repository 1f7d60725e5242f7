//! Kernels that refuse the programs to a process with `CAP_BPF` and `CAP_NET_ADMIN` alone.

// Also on other kernels: 900 s each.

use anyhow::Result;

#[test]
fn a_kernel_that_refuses_two_capabilities_says_why() -> Result<()> {
    crate::verifier::refuses_with_two()
}
