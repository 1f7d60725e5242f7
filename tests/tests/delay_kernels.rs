//! Packets that wait, with real ones: where there is `fq` they arrive no earlier than their bucket
//! lets them, and none is lost that may wait; where there is not, limiter says so.

// Also on other kernels: 60 s each.

use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::packet_socket::receive_buffer;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};

use crate::tc_end_to_end::outgoing_udp;

/// Packets a second.
const RATE: u32 = 500;
const BURST: u32 = 10;
/// As many packets wait half a second at most.
const WAITING: u32 = 250;
/// More than pass.
const SENT: u32 = 270;

/// Sends datagrams at once from the machine with limits, on one socket, and says when each arrived,
/// since before the first was sent.
fn arrivals(bed: &Testbed) -> Result<Vec<Duration>> {
    let target = SocketAddr::from((SENDER.ipv4, 9_000));
    let at = bed.sender.enter(|| -> Result<UdpSocket> {
        let socket = UdpSocket::bind(target)?;
        receive_buffer(&socket, 8 << 20)?;
        // Longer than any packet waits.
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        Ok(socket)
    })??;
    let from = bed.receiver.enter(|| UdpSocket::bind((RECEIVER.ipv4, 0)))??;
    let begun = Instant::now();
    for _ in 0..SENT {
        // One that is dropped on its way out is no error of every kernel.
        drop(from.send_to(b"1", target));
    }
    let mut arrivals = Vec::new();
    while at.recv(&mut [0; 8]).is_ok() {
        arrivals.push(begun.elapsed());
    }
    Ok(arrivals)
}

/// The command in limiter's warning about an interface without room for those that wait.
fn command(said: &str) -> Result<&str> {
    let start = said.find("tc qdisc replace dev recv0").context("no command")?;
    said.get(start..).and_then(|rest| rest.lines().next()).context("no command")
}

#[test]
fn packets_wait_in_fq_and_nowhere_else() -> Result<()> {
    require_root();
    let name = rustix::system::uname();
    if name.release().to_str()?.starts_with("6.1.") {
        println!("Linux 6.1 has no TCX: `tc_kernels` shows that the start is refused");
        return Ok(());
    }
    let bed = Testbed::create("delay")?;
    let mut rules = outgoing_udp(&format!("rate: {RATE}/s, burst: {BURST}"));
    rules.push_str("        action: {delay: {longest: 500ms}}\n");
    let mut limiter = bed.limiter(&rules)?;
    limiter.options(["--direction", "out"]);
    limiter.start()?;
    let said = limiter.said();
    ensure!(said.contains("do not wait on recv0, which has noqueue"), "{said}");
    // What may wait and does not is as good as a larger burst, and no more than that.
    let most = usize::try_from(BURST + WAITING)?;
    let count = arrivals(&bed)?.len();
    ensure!((most..most + 8).contains(&count), "{count} datagrams, and {most} may pass at once");

    let fq = |words: &[&str]| -> Result<bool> {
        let output = bed.receiver.output(Command::new("tc").args(words))?;
        Ok(output.status.success())
    };
    if !fq(&["qdisc", "replace", "dev", "recv0", "root", "fq"])? {
        println!("this kernel has no fq: that packets wait in it, other kernels show");
        limiter.close()?;
        return bed.close();
    }
    // 100 packets of a flow.
    limiter.ok(["reload"])?;
    let said = limiter.ok(["status"])?;
    ensure!(said.contains("has room for 100 packets of a flow"), "{said}");
    let count = arrivals(&bed)?.len();
    ensure!(count < most, "{count} datagrams: fq holds 100 of a flow");

    let words: Vec<&str> = command(&said)?.split(' ').skip(1).collect();
    ensure!(fq(&words)?, "tc refuses {words:?}");
    limiter.ok(["reload"])?;
    let said = limiter.ok(["status"])?;
    ensure!(!said.contains("packets of a flow"), "{said}");
    let arrivals = arrivals(&bed)?;
    let count = arrivals.len();
    ensure!((most..most + 8).contains(&count), "{count} datagrams, and {most} may pass");
    for (place, arrived) in (0..).zip(arrivals) {
        let earliest = Duration::from_secs(1) * (place + 1_u32).saturating_sub(BURST) / RATE;
        ensure!(arrived >= earliest, "number {place} is early: {arrived:?} of {earliest:?}");
    }
    let stats = limiter.ok(["stats"])?;
    ensure!(stats.contains("delayed"), "{stats}");
    limiter.close()?;
    bed.close()
}
