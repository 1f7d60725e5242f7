//! A second cable beside the testbed's, and ten packets at a time on either.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::generator::{Generator, Pattern, Stream};
use crate::limiter::Limiter;
use crate::packet::Frame;
use crate::testbed::Testbed;
use crate::veth::{self, RECEIVER};

/// The second cable's end of the sender.
pub const FAR: &str = "send1";

/// The second cable's end beside [`RECEIVER`].
pub const NEAR: &str = "recv1";

/// The longest that a change takes to be seen.
pub const SEEN_WITHIN: Duration = Duration::from_secs(30);

/// Connects the testbed's namespaces by a second cable.
///
/// # Errors
///
/// When an `ip` command fails, or there is no carrier.
pub fn second_cable(bed: &Testbed) -> Result<()> {
    veth::lay((&bed.sender, FAR), (&bed.receiver, NEAR))
}

/// Sends ten packets of a source into a cable.
///
/// # Errors
///
/// When they cannot be sent.
pub fn send_ten(bed: &Testbed, interface: &'static str, source: [u8; 4]) -> Result<()> {
    let frames = vec![Frame::ipv4(source, RECEIVER.ipv4.octets()).build()];
    let pattern = Pattern::Burst { frames: 10, every: Duration::from_secs(10) };
    let (streams, time) = (vec![Stream { frames, pattern }], Duration::from_millis(200));
    let sent = Generator::start(&bed.sender, interface, streams, time, 1 << 10)?.finish()?;
    ensure!(sent[0].times.len() == 10, "{} were sent", sent[0].times.len());
    Ok(())
}

/// Waits until the daemon has counted so many packets of a source, and says how many passed.
///
/// # Errors
///
/// When it does not answer, or does not count so many.
pub fn passed_of(limiter: &Limiter, source: [u8; 4], packets: u64) -> Result<u64> {
    let deadline = Instant::now() + SEEN_WITHIN;
    loop {
        let answer = limiter.json(&["show", &IpAddr::from(source).to_string()])?;
        let number =
            |name: &str| answer[name].as_u64().with_context(|| format!("{name}: {answer}"));
        let (passed, dropped) = (number("passed")?, number("dropped")?);
        if passed + dropped == packets {
            return Ok(passed);
        }
        ensure!(Instant::now() < deadline, "{passed} passed and {dropped} dropped of {packets}");
        thread::sleep(Duration::from_millis(10));
    }
}
