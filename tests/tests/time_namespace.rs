//! A daemon in a time namespace: times that the program in the kernel compares are the kernel's.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use limiter_tests::generator::{Pattern, Stream};
use limiter_tests::packet::Frame;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::RECEIVER;

/// Seconds that the namespace's clock is from the kernel's.
const OFFSETS: [&str; 2] = ["1000000", "-20"];

/// Five packets, then one in three minutes.
const RULES: &str = "descriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 20, burst: 5}}\n";

/// Sends ten packets and returns how many arrive.
fn arrive_of_ten(bed: &Testbed, source: [u8; 4]) -> Result<u64> {
    let frames = vec![Frame::ipv4(source, RECEIVER.ipv4.octets()).build()];
    let pattern = Pattern::Burst { frames: 10, every: Duration::from_secs(10) };
    let (_, counts) = bed.measure(vec![Stream { frames, pattern }], Duration::from_millis(200))?;
    Ok(counts.of(IpAddr::from(source)))
}

/// Waits until ten packets of a new source each time are limited as before the trial.
fn until(mut holds: impl FnMut() -> Result<bool>) -> Result<bool> {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !holds()? {
        if Instant::now() > deadline {
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(200));
    }
    Ok(true)
}

#[test]
fn times_are_the_kernels_in_a_time_namespace() -> Result<()> {
    require_root();
    for offset in OFFSETS {
        let bed = Testbed::create("timens")?;
        let mut limiter = bed.limiter(RULES)?;
        let args = ["unshare", "--time", "--monotonic", offset, "--boottime", offset, "--"];
        limiter.through(args);
        limiter.start()?;
        limiter.wait_until_logged("this is a time namespace")?;
        // While they last, and not for a second longer than they should by much.
        limiter.ok(["deny", "203.0.113.1", "--for", "1h"])?;
        ensure!(arrive_of_ten(&bed, [203, 0, 113, 1])? == 0, "{offset}: a denied source arrives");
        limiter.ok(["ban", "203.0.113.2", "--for", "1h"])?;
        ensure!(arrive_of_ten(&bed, [203, 0, 113, 2])? == 0, "{offset}: a banned source arrives");
        limiter.ok(["deny", "203.0.113.3", "--for", "1s"])?;
        limiter.ok(["ban", "203.0.113.4", "--for", "1s"])?;
        for host in [3, 4] {
            let passes = until(|| Ok(arrive_of_ten(&bed, [203, 0, 113, host])? > 0))?;
            ensure!(passes, "{offset}: 203.0.113.{host} is dropped for good");
        }
        let wide = bed.dir.write("wide.yaml", RULES.replace("burst: 5", "burst: 9"))?;
        let wide = wide.display().to_string();
        limiter.ok(["apply", &wide, "--confirm", "8s"])?;
        ensure!(arrive_of_ten(&bed, [203, 0, 113, 5])? == 9, "{offset}: nothing is on trial");
        // The program goes back by itself.
        limiter.kill()?;
        let mut host = 10;
        let back = until(|| {
            host += 1;
            Ok(arrive_of_ten(&bed, [203, 0, 113, host])? == 5)
        })?;
        ensure!(back, "{offset}: the trial does not end");
        limiter.through(Vec::<String>::new());
        limiter.start()?;
        limiter.close()?;
        bed.close()?;
    }
    Ok(())
}
