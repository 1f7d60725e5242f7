//! What goes out on other kernels: limited, or refused with the reason where there is no TCX.

// Also on other kernels: 60 s each.

use anyhow::{Result, ensure};
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;

use crate::tc_end_to_end::{arrived, outgoing_udp};

#[test]
fn what_goes_out_is_limited_or_refused_with_the_reason() -> Result<()> {
    require_root();
    let bed = Testbed::create("tckernel")?;
    let quota = outgoing_udp("rate: 100/week, algorithm: fixed_window");
    let mut limiter = bed.limiter(&quota)?;
    limiter.options(["--direction", "both"]);
    let name = rustix::system::uname();
    let release = name.release().to_str()?;
    // Of the kernels that are emulated, only this one is before Linux 6.7.
    if release.starts_with("6.1.") {
        let error = limiter.start().err().map(|error| format!("{error:#}")).unwrap_or_default();
        let said = format!("{error}\n{}", limiter.said());
        ensure!(said.contains("this kernel has no TCX"), "{said}");
        let frames = [45; 4];
        ensure!(arrived(&bed, &frames)? == 180, "refused, but something is in force");
    } else {
        limiter.start()?;
        let count = arrived(&bed, &[45, 45, 45, 10, 1])?;
        ensure!(count == 100, "{count} datagrams of 100");
    }
    limiter.close()?;
    bed.close()
}
