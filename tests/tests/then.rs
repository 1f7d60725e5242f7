//! `--then`: an XDP program of somebody else goes on with what limiter lets pass.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_common::wire::ABI_VERSION;
use limiter_tests::clock;
use limiter_tests::foreign::{PortDropper, pin_pass_program};
use limiter_tests::generator::{Generator, Pattern, Stream};
use limiter_tests::limiter::{self, Limiter};
use limiter_tests::packet::{Frame, Transport};
use limiter_tests::receiver::Receiver;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};

use crate::privilege::{alone, give};
use crate::succession::age;

/// Sources of datagrams to the port that the other program drops, to another port, and to the port
/// of which the rules answer those that are over.
const DROPPED: [u8; 4] = [203, 0, 113, 9];
const PASSED: [u8; 4] = [203, 0, 113, 10];
const ANSWERED: [u8; 4] = [203, 0, 113, 11];

/// Twenty of each source, and of one port five.
const RULES: &str = "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {unit: week, requests_per_unit: 1, burst: 20}}
  - key: destination_port
    value: 11
    rate_limit: {unit: week, requests_per_unit: 5, algorithm: fixed_window}
    action: reject\n";

/// A limit that the traffic of a test keeps.
const FAST: &str = "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {rate: 1000000/s}}\n";

/// Time in which the daemon looks at the pin once more.
const LOOKED_WITHIN: Duration = Duration::from_secs(20);

fn to(source: [u8; 4], destination: u16) -> Vec<Vec<u8>> {
    let udp = Transport::Udp { source: 40_000, destination };
    vec![Frame::ipv4(source, RECEIVER.ipv4.octets()).transport(udp).build()]
}

/// Thirty datagrams of a source at once.
fn thirty(source: [u8; 4], destination: u16) -> Stream {
    let pattern = Pattern::Burst { frames: 30, every: Duration::from_mins(1) };
    Stream { frames: to(source, destination), pattern }
}

/// Datagrams of a source, of thirty, that come to the network stack.
fn arrived(bed: &Testbed, source: [u8; 4], destination: u16) -> Result<u64> {
    let (_, counts) = bed.measure(vec![thirty(source, destination)], Duration::from_millis(200))?;
    Ok(counts.of(IpAddr::from(source)))
}

fn source(last: u8) -> [u8; 4] {
    [198, 51, 100, last]
}

fn with_then(bed: &Testbed, pin: &Path, rules: &str) -> Result<Limiter> {
    let mut limiter = bed.limiter(rules)?;
    limiter.options(["--then".to_owned(), pin.display().to_string()]);
    Ok(limiter)
}

/// Waits until `status` has another word on the program.
fn wait_for_then(
    limiter: &Limiter,
    is_it: impl Fn(&serde_json::Value) -> bool,
) -> Result<serde_json::Value> {
    let deadline = Instant::now() + LOOKED_WITHIN;
    loop {
        let status = limiter.json(&["status"])?;
        if is_it(&status["then"]) {
            return Ok(status["then"].clone());
        }
        ensure!(Instant::now() < deadline, "{}; it said: {}", status["then"], limiter.said());
        thread::sleep(Duration::from_millis(50));
    }
}

/// Drops stay drops, answers stay answers, each packet is counted once, and the other program is
/// asked about what passes and nothing else.
#[test]
fn what_passes_goes_on_in_the_other_program_and_nothing_else() -> Result<()> {
    require_root();
    for store in ["hash", "lines"] {
        let bed = Testbed::create("then")?;
        let pin = bed.bpffs.path().join("other");
        let other = PortDropper::pin(&pin, 9)?;
        let mut limiter = with_then(&bed, &pin, RULES)?;
        limiter.options(["--source-table", store]);
        limiter.start()?;
        let asked = other.asked()?;
        let streams = vec![thirty(DROPPED, 9), thirty(PASSED, 10), thirty(ANSWERED, 11)];
        let (_, counts) = bed.measure(streams, Duration::from_millis(200))?;
        let of = |source: [u8; 4]| counts.of(IpAddr::from(source));
        let arrived = [DROPPED, PASSED, ANSWERED].map(of);
        ensure!(arrived == [0, 20, 5], "{store}: {arrived:?} arrived");
        let (asked, dropped) = (other.asked()? - asked, other.dropped()?);
        ensure!((asked, dropped) == (45, 20), "{store}: asked {asked} times, dropped {dropped}");
        for (source, expected) in [(DROPPED, (20, 10)), (PASSED, (20, 10)), (ANSWERED, (5, 25))] {
            let show = limiter.json(&["show", &IpAddr::from(source).to_string()])?;
            let found = (show["passed"].as_u64(), show["dropped"].as_u64());
            ensure!(found == (Some(expected.0), Some(expected.1)), "{store}: {show}");
        }
        let rejected = limiter.json(&["stats"])?.to_string();
        ensure!(rejected.contains("rejected"), "{rejected}");
        let status = limiter.ok(["status"])?;
        let called = format!("goes on in program {} (foreign_port), pinned at", other.id);
        ensure!(status.contains(&called), "no {called:?} in {status}");
        // With the bypass everything goes on there.
        limiter.on_pins("off")?;
        ensure!(
            self::arrived(&bed, source(1), 9)? == 0 && self::arrived(&bed, source(2), 10)? == 30
        );
        limiter.close()?;
        bed.close()?;
    }
    Ok(())
}

/// Under traffic, a restart, an end of the daemon and an upgrade to another layout of its maps call
/// the other program for every packet.
#[test]
fn no_packet_misses_the_other_program_while_the_daemon_is_replaced() -> Result<()> {
    require_root();
    let bed = Testbed::create("thenup")?;
    let pin = bed.bpffs.path().join("other");
    let other = PortDropper::pin(&pin, 9)?;
    let mut limiter = with_then(&bed, &pin, FAST)?;
    limiter.start()?;
    let receiver = Receiver::start(&bed.receiver, RECEIVER.interface)?;
    let paced = |source, port, per_second| Stream {
        frames: to(source, port),
        pattern: Pattern::Paced { per_second },
    };
    let streams = vec![paced(DROPPED, 9, 5_000.0), paced(PASSED, 10, 500.0)];
    let before = (bed.met()?, other.asked()?);
    let generator =
        Generator::start(&bed.sender, SENDER.interface, streams, Duration::from_mins(5), 1 << 21)?;
    let pause = || clock::sleep_until(clock::now() + 300_000_000);
    pause();
    limiter.terminate()?;
    pause();
    limiter.start()?;
    pause();
    limiter.kill()?;
    pause();
    limiter.start()?;
    pause();
    limiter.terminate()?;
    age(&limiter, ABI_VERSION - 1)?;
    limiter.start()?;
    ensure!(limiter.said().contains("begin anew"), "no upgrade: {}", limiter.said());
    pause();
    ensure!(!generator.is_finished(), "the traffic ended before the starts were over");
    generator.stop();
    let sent: Vec<u64> = generator.finish()?.iter().map(|sent| sent.times.len() as u64).collect();
    bed.wait_until_met(before.0 + sent.iter().sum::<u64>())?;
    let counts = receiver.finish()?;
    counts.check_clean()?;
    ensure!(bed.lost_on_link()? == 0, "frames were lost on the link");
    ensure!(counts.of(IpAddr::from(DROPPED)) == 0, "{} by it", counts.of(IpAddr::from(DROPPED)));
    ensure!(counts.of(IpAddr::from(PASSED)) == sent[1], "some of {sent:?} were lost");
    let asked = other.asked()? - before.1;
    ensure!(asked == sent.iter().sum::<u64>(), "asked {asked} times of {sent:?}");
    // A start without it calls none, and one on maps of a version before makes the array.
    limiter.terminate()?;
    limiter.without_options();
    limiter.start()?;
    ensure!(limiter.json(&["status"])?["then"].is_null());
    ensure!(arrived(&bed, source(3), 9)? == 30, "it is still called");
    limiter.terminate()?;
    let array = limiter.pins().join("maps/THEN");
    fs::remove_file(&array)?;
    limiter.start()?;
    ensure!(array.exists(), "the array was not made");
    limiter.close()?;
    bed.close()
}

/// What is pinned there later is called within a moment; without a pin, or with a program that
/// cannot be called, the one before it goes on, and `status` says so.
#[test]
fn the_daemon_follows_the_pin_and_keeps_what_it_has_without_one() -> Result<()> {
    require_root();
    let bed = Testbed::create("thenpin")?;
    let pin = bed.bpffs.path().join("other");
    let first = PortDropper::pin(&pin, 9)?;
    let mut limiter = with_then(&bed, &pin, RULES)?;
    limiter.start()?;
    fs::remove_file(&pin)?;
    let gone = wait_for_then(&limiter, |then| !then["error"].is_null())?;
    ensure!(gone["program_id"] == first.id, "{gone}");
    let status = limiter.ok(["status"])?;
    for part in ["which is not what is pinned at", "there is no such pin"] {
        ensure!(status.contains(part), "no {part:?} in {status}");
    }
    // Nobody but the entry has it by now.
    drop(first);
    ensure!(arrived(&bed, source(1), 9)? == 0, "it is not called any more");

    pin_pass_program(&pin)?;
    let said = |then: &serde_json::Value, part: &str| {
        then["error"].as_str().is_some_and(|error| error.contains(part))
    };
    wait_for_then(&limiter, |then| said(then, "xdp.frags"))?;
    ensure!(arrived(&bed, source(2), 9)? == 0, "it is not called any more");

    fs::remove_file(&pin)?;
    let second = PortDropper::pin(&pin, 10)?;
    let now = wait_for_then(&limiter, |then| then["error"].is_null())?;
    ensure!(now["program_id"] == second.id, "{now}");
    ensure!(arrived(&bed, source(3), 9)? == 20 && arrived(&bed, source(4), 10)? == 0);

    // A start that is refused changes nothing.
    limiter.terminate()?;
    fs::remove_file(&pin)?;
    refused(&limiter, &pin, "there is no such pin")?;
    ensure!(arrived(&bed, source(5), 10)? == 0, "the refused start took it away");
    limiter.on_pins("detach")?;
    ensure!(arrived(&bed, source(6), 10)? == 30, "something is left");
    limiter.close()?;
    bed.close()
}

/// `limiter run` must end with exit code 2, and name the pin and the reason.
fn refused(limiter: &Limiter, pin: &Path, reason: &str) -> Result<()> {
    let output = limiter.run_to_end()?;
    let said = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(2), "exit code {:?}: {said}", output.status.code());
    for part in [reason, &format!("--then {}", pin.display())] {
        ensure!(said.contains(part), "no {part:?} in {said}");
    }
    Ok(())
}

#[test]
fn a_program_that_cannot_go_on_is_refused_with_the_reason_and_nothing_is_left() -> Result<()> {
    require_root();
    let bed = Testbed::create("thenno")?;
    let plain = bed.bpffs.path().join("plain");
    pin_pass_program(&plain)?;
    let tc = bed.bpffs.path().join("tc");
    limiter_tests::foreign::pin_tc_program(&tc)?;
    let missing = bed.bpffs.path().join("missing");
    let other = bed.bpffs.path().join("other");
    PortDropper::pin(&other, 9)?;
    let file = bed.dir.write("file", "no pin")?;
    let cases: [(&PathBuf, &[&str], &str); 5] = [
        (&plain, &[], "xdp.frags"),
        (&tc, &[], "that is no XDP program"),
        (&missing, &[], "there is no such pin"),
        (&file, &[], "on no BPF file system"),
        (&other, &["--hook", "tc"], "limits nothing at XDP"),
    ];
    for (pin, options, reason) in cases {
        let mut limiter = with_then(&bed, pin, RULES)?;
        limiter.options(options.iter().copied());
        refused(&limiter, pin, reason)?;
        ensure!(!limiter.pins().exists(), "a refused start left {}", limiter.pins().display());
        ensure!(limiter.xdp()?.is_null(), "a refused start left a program");
        limiter.close()?;
    }
    bed.close()
}

/// The pin is the plain user's to open; the kernel asks for no other right.
#[test]
fn a_plain_user_with_two_capabilities_calls_the_other_program() -> Result<()> {
    require_root();
    let bed = Testbed::create("thenplain")?;
    let binary = bed.dir.path().join("limiter");
    fs::copy(limiter::binary()?, &binary)?;
    let rules = bed.dir.write("rules.yaml", RULES)?;
    let pin = bed.bpffs.path().join("other");
    let other = PortDropper::pin(&pin, 9)?;
    for path in [bed.dir.path(), bed.bpffs.path(), &rules, &binary, &pin] {
        give(path)?;
    }
    let mut limiter = Limiter::new(binary, &rules, RECEIVER.interface, &bed);
    limiter.through(alone());
    limiter.options(["--then".to_owned(), pin.display().to_string()]);
    limiter.start().context("a plain user")?;
    ensure!(arrived(&bed, source(1), 9)? == 0 && other.dropped()? == 20);
    ensure!(arrived(&bed, source(2), 10)? == 20);
    limiter.terminate()?;
    limiter.start()?;
    ensure!(arrived(&bed, source(3), 9)? == 0 && other.dropped()? == 40);
    limiter.close()?;
    bed.close()
}
