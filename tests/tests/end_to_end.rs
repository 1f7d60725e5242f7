//! Real traffic through a real rule: tools that know nothing of limiter, and the own generator
//! where exact send times are needed.

use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use limiter_tests::generator::{Pattern, Stream};
use limiter_tests::limiter::Limiter;
use limiter_tests::oracle::Limit;
use limiter_tests::packet::{Extension, Fragment, Frame, TAG_SERVICE, Transport};
use limiter_tests::receiver::Receiver;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{self, RECEIVER, SENDER};
use limiter_tests::{command, sandbox};
use serde_json::Value;

/// Every promise on rates is within this.
const PERCENT: f64 = 1.0;

fn rules(source: &str, rate_limit: &str) -> String {
    format!(
        "domain: test\ndescriptors:\n  - key: remote_address\n    value: {source}\n    \
         rate_limit: {{{rate_limit}}}\n"
    )
}

fn check_error(what: &str, delivered: u64, expected: u64) -> Result<()> {
    let error = sandbox::format::error_percent(delivered, expected);
    ensure!(
        error.abs() <= PERCENT,
        "{what}: {delivered} arrived, {expected} expected ({error:.2} %)"
    );
    Ok(())
}

fn counter(limiter: &Limiter, source: &str, name: &str) -> Result<u64> {
    let answer = limiter.json(&["show", source])?;
    answer.get(name).and_then(Value::as_u64).with_context(|| format!("no {name} in {answer}"))
}

/// Runs a tool in the sending namespace while both ends are counted; returns what the tool offered,
/// as times, and what arrived.
fn tool(bed: &Testbed, source: IpAddr, program: &str, args: &[&str]) -> Result<(Vec<u64>, u64)> {
    let tap = Receiver::tap(&bed.sender, SENDER.interface)?;
    let receiver = Receiver::start(&bed.receiver, RECEIVER.interface)?;
    // ping's own exit code says whether its packets came back; we count instead.
    let output = bed
        .sender
        .output(Command::new("timeout").arg("120").arg(program).args(args).stdin(Stdio::null()))?;
    ensure!(output.status.code() != Some(124), "{program} did not end within two minutes");
    ensure!(output.status.code() != Some(127), "{program} is not installed");
    let (offered, arrived) = (tap.finish()?, receiver.finish()?);
    offered.check_clean()?;
    arrived.check_clean()?;
    ensure!(bed.lost_on_link()? == 0, "frames were lost on the link");
    let times = offered.times_of(source).to_vec();
    ensure!(
        !times.is_empty(),
        "{program} sent nothing: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok((times, arrived.of(source)))
}

/// How many pass of what a tool offered; it must have offered much more, however slow the machine
/// made it.
fn over_its_limit(limit: &Limit, offered: Vec<u64>) -> Result<u64> {
    let sent = offered.len();
    let expected = limit.delivered(1, offered)?;
    ensure!(sent as u64 * 4 > expected * 5, "only {sent} were sent, of which {expected} conform");
    Ok(expected)
}

#[test]
fn ping_within_its_limit_loses_nothing() -> Result<()> {
    require_root();
    let bed = Testbed::create("ping")?;
    // 20 a second are sent.
    let both = "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {unit: second, requests_per_unit: 25, burst: 3}}\n";
    let mut limiter = bed.limiter(both)?;
    limiter.start()?;
    for (source, target) in [
        (SENDER.ipv4.to_string(), RECEIVER.ipv4.to_string()),
        (SENDER.ipv6.to_string(), RECEIVER.ipv6.to_string()),
    ] {
        let said =
            bed.sender.run("ping", ["-n", "-q", "-c", "40", "-i", "0.05", "-w", "60", &target])?;
        ensure!(said.contains("40 packets transmitted, 40 received, 0% packet loss"), "{said}");
        ensure!(counter(&limiter, &source, "passed")? == 40, "{source}: not 40 passed");
        ensure!(counter(&limiter, &source, "dropped")? == 0, "{source}: some were dropped");
    }
    limiter.close()?;
    bed.close()
}

/// Pings so often, at once, and returns how many passed in all since the first one.
fn passed_after(bed: &Testbed, limiter: &Limiter, pings: &str) -> Result<u64> {
    let target = RECEIVER.ipv4.to_string();
    bed.sender.output(
        Command::new("ping").args(["-n", "-q", "-c", pings, "-i", "0.01", "-W", "1", &target]),
    )?;
    counter(limiter, &SENDER.ipv4.to_string(), "passed")
}

/// A quota that is used up and raised gives the difference at once, and the daemon says so; a trial
/// that is taken back leaves it as it was.
#[test]
fn a_raised_quota_gives_the_difference_at_once() -> Result<()> {
    require_root();
    let bed = Testbed::create("quota")?;
    let source = SENDER.ipv4.to_string();
    let quota =
        |packets: u32| rules(&source, &format!("rate: {packets}/week, algorithm: fixed_window"));
    let mut limiter = bed.limiter(&quota(10))?;
    limiter.start()?;
    ensure!(passed_after(&bed, &limiter, "15")? == 10, "not the quota");
    std::fs::write(limiter.rules(), quota(20))?;
    let said = limiter.ok(["reload"])?;
    ensure!(
        said.contains("a source that used up a raised limit gets the difference at once"),
        "{said}"
    );
    ensure!(passed_after(&bed, &limiter, "15")? == 20, "not the difference");
    let trial = limiter.rules().with_file_name("trial.yaml");
    std::fs::write(&trial, quota(25))?;
    let trial = trial.to_str().context("path")?;
    limiter.ok(["apply", "--force", "--confirm", "10m", trial])?;
    ensure!(passed_after(&bed, &limiter, "3")? == 23, "not three more on trial");
    let said = limiter.ok(["revert"])?;
    ensure!(said.contains("a source that used more than a limit now allows waits"), "{said}");
    ensure!(passed_after(&bed, &limiter, "9")? == 23, "the quota was used up before the trial");
    std::fs::write(limiter.rules(), quota(24))?;
    limiter.ok(["reload"])?;
    ensure!(passed_after(&bed, &limiter, "9")? == 24, "23 were used");
    limiter.close()?;
    bed.close()
}

/// A hundred times the rate is there at once for a source that had used its burst up.
#[test]
fn a_raised_rate_counts_at_once() -> Result<()> {
    require_root();
    let bed = Testbed::create("raised")?;
    let source = SENDER.ipv4.to_string();
    let mut limiter = bed.limiter(&rules(&source, "rate: 1/h, burst: 5"))?;
    limiter.start()?;
    ensure!(passed_after(&bed, &limiter, "8")? == 5, "not the burst");
    std::fs::write(limiter.rules(), rules(&source, "rate: 100/h, burst: 5"))?;
    let said = limiter.ok(["reload"])?;
    ensure!(said.contains("refills at the new rate"), "{said}");
    ensure!(passed_after(&bed, &limiter, "8")? == 5, "packets that no rate gave");
    // Five were used, of a burst that is larger by seven, and of a rate of a thousand a second.
    std::fs::write(limiter.rules(), rules(&source, "rate: 100/h, burst: 12"))?;
    limiter.ok(["reload"])?;
    ensure!(passed_after(&bed, &limiter, "9")? == 12, "not the difference");
    std::fs::write(limiter.rules(), rules(&source, "rate: 1000/s, burst: 12"))?;
    limiter.ok(["reload"])?;
    ensure!(passed_after(&bed, &limiter, "9")? == 21, "a thousand a second are not there");
    // A cut takes the rate at once, and a raise after it gives no burst.
    std::fs::write(limiter.rules(), rules(&source, "rate: 1/h, burst: 3"))?;
    limiter.ok(["reload"])?;
    ensure!(passed_after(&bed, &limiter, "9")? == 24, "not the smaller burst");
    std::fs::write(limiter.rules(), rules(&source, "rate: 1/h, burst: 12"))?;
    let said = limiter.ok(["reload"])?;
    ensure!(said.contains("refills at the new rate"), "{said}");
    ensure!(passed_after(&bed, &limiter, "9")? == 24, "a burst for a change back and forth");
    limiter.close()?;
    bed.close()
}

#[test]
fn ping_over_its_limit_is_dropped() -> Result<()> {
    require_root();
    let bed = Testbed::create("ping-over")?;
    let source = SENDER.ipv4.to_string();
    let mut limiter = bed.limiter(&rules(&source, "unit: hour, requests_per_unit: 1, burst: 5"))?;
    limiter.start()?;
    let target = RECEIVER.ipv4.to_string();
    let output = bed.sender.output(
        Command::new("ping").args(["-n", "-q", "-c", "20", "-i", "0.01", "-W", "1", &target]),
    )?;
    let said = String::from_utf8(output.stdout)?;
    ensure!(said.contains("20 packets transmitted, 5 received"), "{said}");
    limiter.close()?;
    bed.close()
}

#[test]
fn hping3_over_its_limit_is_held_to_it() -> Result<()> {
    require_root();
    let bed = Testbed::create("hping")?;
    veth::offloads_off(&bed.sender, &bed.receiver)?;
    let mut limiter =
        bed.limiter(&rules("192.0.2.0/24", "unit: second, requests_per_unit: 500, burst: 100"))?;
    limiter.start()?;
    let source = IpAddr::from(SENDER.ipv4);
    let target = RECEIVER.ipv4.to_string();
    // 2000 SYNs a second for three seconds.
    let args = ["-q", "-n", "-S", "-p", "9", "-i", "u500", "-c", "6000", &target];
    let (offered, arrived) = tool(&bed, source, "hping3", &args)?;
    let expected = over_its_limit(&Limit::per_second(500, 100), offered)?;
    check_error("hping3", arrived, expected)?;
    limiter.close()?;
    bed.close()
}

#[test]
fn iperf3_over_its_limit_is_held_to_it() -> Result<()> {
    require_root();
    let bed = Testbed::create("iperf")?;
    veth::offloads_off(&bed.sender, &bed.receiver)?;
    let mut limiter =
        bed.limiter(&rules("192.0.2.1", "unit: second, requests_per_unit: 1500, burst: 200"))?;
    limiter.start()?;
    let mut server = Server::start(&bed)?;
    let target = RECEIVER.ipv4.to_string();
    // 4000 packets a second. The control connection is from the same source and counted with them.
    let args =
        ["-c", &target, "-u", "-l", "500", "-b", "16M", "-t", "3", "--connect-timeout", "5000"];
    let (offered, arrived) = tool(&bed, IpAddr::from(SENDER.ipv4), "iperf3", &args)?;
    server.end()?;
    let expected = over_its_limit(&Limit::per_second(1500, 200), offered)?;
    check_error("iperf3", arrived, expected)?;
    limiter.close()?;
    bed.close()
}

/// An iperf3 server for one client.
struct Server(Child);

impl Server {
    fn start(bed: &Testbed) -> Result<Self> {
        let mut command = Command::new("timeout");
        command.args(["120", "iperf3", "-s", "-1"]).stdin(Stdio::null()).stdout(Stdio::null());
        let server = Self(bed.receiver.spawn(&mut command)?);
        // The server listens when its port shows up.
        for _ in 0..600 {
            if bed.receiver.run("ss", ["-Hltn", "sport = :5201"])?.contains("5201") {
                return Ok(server);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        anyhow::bail!("iperf3 does not listen after half a minute")
    }

    fn end(&mut self) -> Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("cannot end iperf3: {error}");
        }
    }
}

/// Ten kinds of IPv4 and nine of IPv6 frames mixed, at three times the limit.
#[test]
fn no_header_is_a_way_around_the_limit() -> Result<()> {
    require_root();
    let bed = Testbed::create("headers")?;
    let mut limiter = bed.limiter(
        "domain: test\ndescriptors:
  - key: remote_address
    rate_limit: {unit: second, requests_per_unit: 400, burst: 60}\n",
    )?;
    limiter.start()?;
    let v4 = || Frame::ipv4([203, 0, 113, 5], RECEIVER.ipv4.octets()).payload(&[0; 32]);
    let host = |last| {
        let mut source = SENDER.ipv6.octets();
        (source[7], source[15]) = (7, last);
        Frame::ipv6(source, RECEIVER.ipv6.octets()).payload(&[0; 32])
    };
    let tcp = Transport::Tcp { source: 1, destination: 2, flags: 0x12 };
    let first = Fragment { id: 1, offset: 0, more: true };
    let later = Fragment { id: 1, offset: 5, more: false };
    let frames_v4 = [
        v4(),
        v4().options(&[1; 20]),
        v4().fragment(first),
        v4().fragment(later),
        v4().vlan(7),
        v4().tag(TAG_SERVICE, 3).vlan(7),
        v4().transport(tcp),
        v4().transport(Transport::Echo { id: 1, sequence: 1 }),
        v4().transport(Transport::Raw(132)),
        v4().macs([2, 9, 9, 9, 9, 9], RECEIVER.mac),
    ];
    let frames_v6 = [
        host(1),
        host(2).extension(Extension::HopByHop(0)),
        host(3).extension(Extension::Destination(3)).extension(Extension::Routing(0)),
        host(4).extension(Extension::Authentication(3)),
        host(5).fragment(first),
        host(6).fragment(later),
        host(7).vlan(7),
        host(8).transport(tcp),
        host(9).transport(Transport::Raw(59)),
    ];
    let build = |frames: &[Frame]| frames.iter().map(Frame::build).collect::<Vec<_>>();
    let pattern = Pattern::Paced { per_second: 1200.0 };
    let streams = vec![
        Stream { frames: build(&frames_v4), pattern },
        Stream { frames: build(&frames_v6), pattern },
    ];
    let (recordings, counts) = bed.measure(streams, Duration::from_secs(3))?;
    let limit = Limit::per_second(400, 60);
    let v6: IpAddr = "2001:db8:0:7::".parse()?;
    for (source, recording) in [IpAddr::from([203, 0, 113, 5]), v6].into_iter().zip(recordings) {
        let expected = limit.delivered(1, recording.times)?;
        check_error(&source.to_string(), counts.of(source), expected)?;
    }
    limiter.close()?;
    bed.close()
}

#[test]
fn bytes_are_counted_as_bytes() -> Result<()> {
    require_root();
    let bed = Testbed::create("bytes")?;
    let limit = "unit: second, requests_per_unit: 125000, count: bytes, burst: 20000";
    let mut limiter = bed.limiter(&rules("203.0.113.0/24", limit))?;
    limiter.start()?;
    let stream = |last: u8, length: usize, per_second: f64| {
        let frame = Frame::ipv4([203, 0, 113, last], RECEIVER.ipv4.octets());
        let frame = frame.payload(&vec![0; length - 42]).build();
        Stream { frames: vec![frame], pattern: Pattern::Paced { per_second } }
    };
    // Small, middle and full frames, each at about three times the rate.
    let sizes = [(1u8, 100usize, 3750.0), (2, 500, 750.0), (3, 1514, 250.0)];
    let streams = sizes.iter().map(|(last, length, rate)| stream(*last, *length, *rate)).collect();
    let (recordings, counts) = bed.measure(streams, Duration::from_secs(4))?;
    for ((last, length, _), recording) in sizes.into_iter().zip(recordings) {
        let cost = u32::try_from(length)?;
        let expected = Limit::per_second(125_000, 20_000).delivered(cost, recording.times)?;
        let delivered = counts.of(IpAddr::from([203, 0, 113, last]));
        check_error(&format!("frames of {length} bytes"), delivered, expected)?;
    }
    limiter.close()?;
    bed.close()
}

#[test]
fn a_flood_does_not_touch_a_conforming_source() -> Result<()> {
    require_root();
    let bed = Testbed::create("flood")?;
    let mut limiter = bed.limiter(
        "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 1, burst: 1}}
  - {key: remote_address, value: 203.0.113.9, rate_limit: {unit: second, requests_per_unit: 500, \
  burst: 20}}\n",
    )?;
    limiter.start()?;
    let frame = |source: [u8; 4]| Frame::ipv4(source, RECEIVER.ipv4.octets()).build();
    let flood: Vec<_> = (0..10_000u16)
        .map(|n| {
            let [high, low] = n.to_be_bytes();
            frame([198, 18, high, low])
        })
        .collect();
    let sources = flood.len() as u64;
    let streams = vec![
        Stream {
            frames: vec![frame([203, 0, 113, 9])],
            pattern: Pattern::Paced { per_second: 400.0 },
        },
        Stream { frames: flood, pattern: Pattern::Flood { per_second: 30_000 } },
    ];
    let (recordings, counts) = bed.measure(streams, Duration::from_secs(4))?;
    let offered = recordings[0].times.len() as u64;
    ensure!(
        counts.of(IpAddr::from([203, 0, 113, 9])) == offered,
        "the conforming source lost some"
    );
    ensure!(
        recordings[1].times.len() as u64 > sources * 3 / 2,
        "the flood was too slow to say anything"
    );
    let passed: u64 = counts
        .sources
        .iter()
        .filter(
            |(source, _)| matches!(source, IpAddr::V4(source) if source.octets()[..2] == [198, 18]),
        )
        .map(|(_, count)| count)
        .sum();
    ensure!(passed == sources, "{passed} of the flood passed, one of each of {sources} may");
    limiter.close()?;
    bed.close()
}

#[test]
fn tools_are_there() -> Result<()> {
    // So that their absence has one clear message.
    for (program, option) in [
        ("ip", "-V"),
        ("ping", "-V"),
        ("iperf3", "-v"),
        ("hping3", "-v"),
        ("ethtool", "--version"),
        ("ss", "-V"),
    ] {
        command::output(Command::new(program).arg(option))?;
    }
    Ok(())
}
