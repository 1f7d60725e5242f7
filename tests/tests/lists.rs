//! Allow and deny lists with real frames: before every rule, and through the daemon's death.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use limiter_tests::generator::{Pattern, Stream};
use limiter_tests::packet::Frame;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::RECEIVER;

const SOURCE: [u8; 4] = [203, 0, 113, 77];

/// Five packets, then one in three minutes.
const RULES: &str = "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 20, burst: 5}}\n";

/// Sends ten packets and returns how many arrive.
fn arrive_of_ten(bed: &Testbed) -> Result<u64> {
    let frames = vec![Frame::ipv4(SOURCE, RECEIVER.ipv4.octets()).build()];
    let pattern = Pattern::Burst { frames: 10, every: Duration::from_secs(10) };
    let (_, counts) = bed.measure(vec![Stream { frames, pattern }], Duration::from_millis(200))?;
    Ok(counts.of(IpAddr::from(SOURCE)))
}

#[test]
fn lists_hold_with_and_without_a_daemon() -> Result<()> {
    require_root();
    let bed = Testbed::create("lists")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    limiter.json(&["deny", "203.0.113.0/24"])?;
    ensure!(arrive_of_ten(&bed)? == 0, "a denied prefix arrives");
    limiter.json(&["allow", "203.0.113.77", "--for", "1h"])?;
    ensure!(arrive_of_ten(&bed)? == 10, "an allowed source is dropped");
    limiter.kill()?;
    ensure!(arrive_of_ten(&bed)? == 10, "without the daemon the allow list does not hold");
    limiter.start()?;
    let lists = limiter.json(&["lists"])?;
    let entries = lists["entries"].as_array().map_or(0, Vec::len);
    ensure!(entries == 2, "{entries} entries after the restart: {lists}");
    limiter.json(&["unlist", "203.0.113.77"])?;
    ensure!(arrive_of_ten(&bed)? == 0, "the prefix is denied no longer");
    limiter.json(&["unlist", "203.0.113.0/24"])?;
    // What came while it was listed was charged to nobody.
    ensure!(arrive_of_ten(&bed)? == 5, "the rule does not hold after the lists");
    limiter.close()?;
    bed.close()
}

#[test]
fn an_entry_ends_in_the_program_without_a_daemon() -> Result<()> {
    require_root();
    let bed = Testbed::create("expiry")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    limiter.json(&["deny", "203.0.113.77", "--for", "10s"])?;
    ensure!(arrive_of_ten(&bed)? == 0, "a denied source arrives");
    limiter.kill()?;
    // The end may be amid ten packets: then some of the burst are among the next ones.
    let (deadline, mut passed) = (Instant::now() + Duration::from_mins(1), 0);
    while passed < 5 {
        passed += arrive_of_ten(&bed)?;
        ensure!(Instant::now() < deadline, "the entry did not end: {passed} passed");
    }
    ensure!(passed == 5, "{passed} passed: the rule does not hold after the entry");
    limiter.close()?;
    bed.close()
}
