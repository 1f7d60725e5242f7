//! Limits at tc with real packets: what goes out, what comes in behind XDP, and both together; and
//! super-frames, which count as the packets that they become.

// Also on other kernels: 120 s each.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::cables::{FAR, NEAR, SEEN_WITHIN, passed_of, second_cable, send_ten};
use limiter_tests::delay::traffic::{Pace, collect};
use limiter_tests::interrupt::Interrupt;
use limiter_tests::limiter::Limiter;
use limiter_tests::oracle::Limit;
use limiter_tests::packet_socket::{receive_buffer, segment};
use limiter_tests::requests::bounds;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};
use serde_json::Value;

/// A quota of ten packets for the sender, which no time refills.
fn quota(direction: &str) -> String {
    format!(
        "domain: test\ndescriptors:\n  - key: protocol\n    value: icmp\n    direction: {direction}\n    \
         descriptors:\n      - key: remote_address\n        \
         rate_limit: {{rate: 10/week, algorithm: fixed_window}}\n"
    )
}

/// Pings the sender from the machine with limits, 40 times, and says how many answers came.
pub(crate) fn answers(bed: &Testbed) -> Result<usize> {
    let target = SENDER.ipv4.to_string();
    let output = bed
        .receiver
        .output(Command::new("ping").args(["-n", "-c", "40", "-i", "0.01", "-W", "1", &target]))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(said.matches("bytes from").count())
}

pub(crate) fn limited(bed: &Testbed, rules: &str, options: [&str; 2]) -> Result<Limiter> {
    let mut limiter = bed.limiter(rules)?;
    limiter.options(options);
    limiter.start()?;
    Ok(limiter)
}

/// A restart adopts the link, a dead daemon changes nothing, `detach` ends it. Linux 6.1 limits by
/// filters of clsact as others do by TCX.
#[test]
fn what_goes_out_is_limited_and_what_comes_in_is_not() -> Result<()> {
    require_root();
    let bed = Testbed::create("tcout")?;
    let mut limiter = limited(&bed, &quota("out"), ["--direction", "out"])?;
    ensure!(answers(&bed)? == 10, "ten requests go out, and are answered");
    // A restart adopts the link and the bucket.
    limiter.terminate()?;
    limiter.start()?;
    ensure!(answers(&bed)? == 0, "the quota is used up");
    let status = limiter.ok(["status"])?;
    ensure!(status.contains("tc out"), "{status}");
    // With the daemon dead the program goes on.
    limiter.kill()?;
    ensure!(answers(&bed)? == 0, "the program does not need the daemon");
    limiter.on_pins("detach")?;
    ensure!(answers(&bed)? == 40, "nothing limits after `detach`");
    limiter.close()?;
    bed.close()
}

/// Answers that go out look like those that a rule for what comes in limits.
#[test]
fn rules_for_what_comes_in_leave_what_goes_out_alone() -> Result<()> {
    require_root();
    let bed = Testbed::create("tcapart")?;
    let rules = "domain: test\ndescriptors:\n  - key: icmp_type\n    value: echo-reply\n    \
                 rate_limit: {rate: 3/week, algorithm: fixed_window}\n  - key: protocol\n    \
                 value: udp\n    direction: out\n    rate_limit: {rate: 50/s}\n";
    let limiter = limited(&bed, rules, ["--direction", "both"])?;
    let target = RECEIVER.ipv4.to_string();
    let ping = ["-n", "-c", "10", "-i", "0.01", "-W", "1", &target];
    let output = bed.sender.output(Command::new("ping").args(ping))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(said.matches("bytes from").count() == 10, "{said}");
    ensure!(answers(&bed)? == 3, "three answers come in");
    limiter.close()?;
    bed.close()
}

/// `--hook tc` limits what comes in.
#[test]
fn what_comes_in_is_limited_at_tc() -> Result<()> {
    require_root();
    let bed = Testbed::create("tcin")?;
    let limiter = limited(&bed, &quota("in"), ["--hook", "tc"])?;
    ensure!(answers(&bed)? == 10, "ten answers come in");
    limiter.close()?;
    bed.close()
}

#[test]
fn a_rule_for_both_directions_has_one_bucket() -> Result<()> {
    require_root();
    let bed = Testbed::create("tcboth")?;
    let limiter = limited(&bed, &quota("both"), ["--direction", "both"])?;
    ensure!(answers(&bed)? == 5, "five requests and five answers are ten packets");
    limiter.close()?;
    bed.close()
}

/// A packet that met the old hook and the new one would be charged twice.
#[test]
fn a_start_at_other_hooks_ends_the_old_ones() -> Result<()> {
    require_root();
    let bed = Testbed::create("tcmoves")?;
    let mut limiter = limited(&bed, &quota("in"), ["--direction", "both"])?;
    ensure!(answers(&bed)? == 10, "ten answers come in");
    limiter.terminate()?;
    // The buckets stay: nothing is left of the quota at tc, either.
    limiter.without_options().options(["--hook", "tc"]);
    limiter.start()?;
    for left in ["recv0 is no longer limited at XDP", "recv0 is no longer limited at tc out"] {
        ensure!(limiter.said().contains(left), "no {left:?}: {}", limiter.said());
    }
    ensure!(!limiter.said().contains("still limited"), "{}", limiter.said());
    ensure!(limiter.xdp()?.is_null(), "a program is still at XDP");
    let hooks = links(&limiter)?;
    ensure!(hooks == ["links-in/recv0"], "{hooks:?}");
    ensure!(answers(&bed)? == 0, "the quota is used up");
    limiter.close()?;
    bed.close()
}

/// The pinned links, each with its directory.
fn links(limiter: &Limiter) -> Result<Vec<String>> {
    let mut links = Vec::new();
    for hook in ["links", "links-in", "links-out"] {
        for entry in fs::read_dir(limiter.pins().join(hook))? {
            links.push(format!("{hook}/{}", entry?.file_name().to_string_lossy()));
        }
    }
    Ok(links)
}

/// The one that starts last is asked first; each is without the other when that one is detached.
#[test]
fn two_programs_at_tc_leave_each_other_alone() -> Result<()> {
    require_root();
    let bed = Testbed::create("tctwo")?;
    let mut first = bed.limiter(&quota("out").replace("10/week", "30/week"))?;
    first.options(["--direction", "out"]);
    first.start()?;
    // A rule file of its own.
    let mut second = bed.limiter(&quota("out"))?;
    second.apart("second").options(["--direction", "out"]);
    second.start()?;
    ensure!(answers(&bed)? == 10, "the second one is not in force");
    second.terminate()?;
    second.on_pins("detach")?;
    let left = answers(&bed)?;
    ensure!(left == 20, "{left} of the 20 that are left of the first one's quota");
    // Attached again, the second one uses up its quota before a first one that has nothing left.
    second.start()?;
    ensure!(answers(&bed)? == 0, "the first one is gone");
    first.close()?;
    ensure!(answers(&bed)? == 0, "the second one went with the first one");
    second.terminate()?;
    second.on_pins("detach")?;
    ensure!(answers(&bed)? == 40, "nothing limits any more");
    second.close()?;
    bed.close()
}

#[test]
fn an_interface_that_comes_back_is_limited_again_at_tc() -> Result<()> {
    require_root();
    let bed = Testbed::create("tcback")?;
    second_cable(&bed)?;
    let mut limiter = bed.limiter(
        "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 20, burst: 5}}\n",
    )?;
    limiter.on(NEAR).options(["--hook", "tc", "--direction", "both"]);
    limiter.start()?;
    let source = [203, 0, 113, 77];
    send_ten(&bed, FAR, source)?;
    ensure!(passed_of(&limiter, source, 10)? == 5);
    bed.receiver.ip(["link", "delete", NEAR])?;
    wait_for_hooks(&limiter, false)?;
    second_cable(&bed)?;
    wait_for_hooks(&limiter, true)?;
    send_ten(&bed, FAR, source)?;
    ensure!(passed_of(&limiter, source, 20)? == 5, "the interface came back with a full bucket");
    // Down and up changes nothing, and a start adopts both links.
    bed.receiver.ip(["link", "set", NEAR, "down"])?;
    bed.receiver.ip(["link", "set", NEAR, "up"])?;
    limiter.kill()?;
    limiter.start()?;
    let status = wait_for_hooks(&limiter, true)?;
    ensure!(status.iter().all(|at| at["adopted"] == true), "{status:?}");
    limiter.close()?;
    bed.close()
}

/// An interface that gets another name.
#[test]
fn an_interface_that_is_renamed_stays_limited_at_tc() -> Result<()> {
    require_root();
    let bed = Testbed::create("tcname")?;
    second_cable(&bed)?;
    let mut limiter = bed.limiter(&quota("out"))?;
    limiter.on(NEAR).options(["--hook", "tc", "--direction", "both"]);
    limiter.start()?;
    for words in [&["down"][..], &["name", "other0"], &["up"]] {
        bed.receiver.ip(["link", "set", NEAR].into_iter().chain(words.iter().copied())).or_else(
            // By the new name.
            |_| bed.receiver.ip(["link", "set", "other0"].into_iter().chain(words.iter().copied())),
        )?;
    }
    let status = wait_for_hooks(&limiter, true)?;
    ensure!(status.iter().all(|at| at["name"] == "other0"), "{status:?}");
    // A start finds it by the interface, and not by the name that its pin had.
    limiter.terminate()?;
    limiter.on("other0");
    limiter.start()?;
    let status = wait_for_hooks(&limiter, true)?;
    ensure!(status.iter().all(|at| at["adopted"] == true), "{status:?}");
    let hooks = links(&limiter)?;
    ensure!(hooks == ["links-in/other0", "links-out/other0"], "{hooks:?}");
    limiter.close()?;
    bed.close()
}

/// A filter of somebody else's, behind limiter, is asked about what passes and stays.
#[test]
fn filters_of_others_stay() -> Result<()> {
    require_root();
    let bed = Testbed::create("tcother")?;
    let tc = |words: &str| bed.receiver.run("tc", words.split(' '));
    tc("qdisc add dev recv0 clsact")?;
    if tc("filter add dev recv0 egress pref 7 matchall classid 1:1").is_err() {
        println!("this kernel has no matchall: other kernels show this");
        return bed.close();
    }
    let filters = || tc("filter show dev recv0 egress");
    let mut limiter = limited(&bed, &quota("out"), ["--direction", "out"])?;
    ensure!(answers(&bed)? == 10, "the filter lets what is over the limit pass");
    ensure!(filters()?.contains("pref 7 matchall"), "{}", filters()?);
    limiter.terminate()?;
    limiter.on_pins("detach")?;
    ensure!(answers(&bed)? == 40, "nothing limits after `detach`");
    let left = filters()?;
    ensure!(left.contains("pref 7 matchall") && !left.contains("bpf"), "{left}");
    limiter.close()?;
    bed.close()
}

/// Waits until both hooks of the only interface are attached, or none is.
fn wait_for_hooks(limiter: &Limiter, attached: bool) -> Result<Vec<Value>> {
    let deadline = Instant::now() + SEEN_WITHIN;
    loop {
        let status = limiter.json(&["status"])?;
        let all = status["interfaces"].as_array().context("no interfaces")?;
        let modes: Vec<_> = all.iter().filter_map(|at| at["mode"].as_str()).collect();
        ensure!(all.len() == 2, "{status}");
        if all.iter().all(|at| at["attached"] == attached) {
            ensure!(!attached || modes == ["tc in", "tc out"], "{modes:?}");
            return Ok(all.clone());
        }
        ensure!(Instant::now() < deadline, "{status}; it said: {}", limiter.said());
        thread::sleep(Duration::from_millis(10));
    }
}

/// Bytes of a datagram, and of its headers on the wire.
const DATAGRAM: u16 = 1_000;
const HEADERS: u64 = 14 + 20 + 8;

/// A rule for outgoing UDP to each destination.
pub(crate) fn outgoing_udp(rate_limit: &str) -> String {
    format!(
        "domain: test\ndescriptors:\n  - key: protocol\n    value: udp\n    direction: out\n    \
         descriptors:\n      - key: remote_address\n        rate_limit: {{{rate_limit}}}\n"
    )
}

/// Sends super-frames of so many datagrams from the machine with limits, and says how many
/// datagrams arrive: the stack at the other end sees them one by one.
pub(crate) fn arrived(bed: &Testbed, frames: &[u16]) -> Result<usize> {
    let target = SocketAddr::from((SENDER.ipv4, 9_000));
    let at = bed.sender.enter(|| -> Result<UdpSocket> {
        let socket = UdpSocket::bind(target)?;
        receive_buffer(&socket, 64 << 20)?;
        socket.set_read_timeout(Some(Duration::from_millis(500)))?;
        Ok(socket)
    })??;
    bed.receiver.enter(|| -> Result<()> {
        let socket = UdpSocket::bind((RECEIVER.ipv4, 0))?;
        segment(&socket, DATAGRAM)?;
        for datagrams in frames {
            let bytes = vec![0; usize::from(*datagrams) * usize::from(DATAGRAM)];
            // A frame that is dropped on its way out is no error of every kernel.
            drop(socket.send_to(&bytes, target));
        }
        Ok(())
    })??;
    let mut buffer = [0; 2_048];
    let mut count = 0;
    while let Ok(bytes) = at.recv(&mut buffer) {
        ensure!(bytes == usize::from(DATAGRAM), "a datagram of {bytes} bytes");
        count += 1;
    }
    Ok(count)
}

/// Whatever the datagrams of a frame are, no more pass than the quota has, and those that fit do.
#[test]
fn a_super_frame_counts_as_its_datagrams() -> Result<()> {
    require_root();
    let bed = Testbed::create("tcgso")?;
    let frames: Vec<u16> = [45; 30].into_iter().chain([10, 10, 1]).collect();
    let quota = outgoing_udp("rate: 1000/week, algorithm: fixed_window");
    let limiter = limited(&bed, &quota, ["--direction", "out"])?;
    // 22 frames of 45, and one of 10.
    let count = arrived(&bed, &frames)?;
    ensure!(count == 1_000, "{count} datagrams of 1,000");
    limiter.close()?;
    bed.close()
}

/// Each datagram has headers of its own on the wire.
#[test]
fn bytes_of_a_super_frame_are_those_on_the_wire() -> Result<()> {
    require_root();
    let bed = Testbed::create("tcgsob")?;
    let frames: Vec<u16> = [45; 30].into_iter().chain([10; 3]).collect();
    let each = u64::from(DATAGRAM) + HEADERS;
    let quota = 21 * 45 * each + 10 * each + each - 1;
    let quota = outgoing_udp(&format!(
        "unit: week, requests_per_unit: {quota}, count: bytes, algorithm: fixed_window"
    ));
    let limiter = limited(&bed, &quota, ["--direction", "out"])?;
    let count = arrived(&bed, &frames)?;
    ensure!(count == 21 * 45 + 10, "{count} datagrams");
    limiter.close()?;
    bed.close()
}

/// A frame that no burst could hold passes when the bucket is full, and the bucket owes the rest.
#[test]
fn a_super_frame_larger_than_the_burst_passes_once_and_is_owed() -> Result<()> {
    require_root();
    let bed = Testbed::create("tcowes")?;
    let limiter = limited(&bed, &outgoing_udp("rate: 10/week, burst: 5"), ["--direction", "out"])?;
    let count = arrived(&bed, &[45, 45, 1, 1])?;
    ensure!(count == 45, "{count} datagrams of 45");
    limiter.close()?;
    bed.close()
}

/// Of a limit that counts in windows it is refused, in each window, and smaller frames pass.
#[test]
fn a_super_frame_larger_than_a_window_is_refused() -> Result<()> {
    require_root();
    for algorithm in
        ["fixed_window", "sliding_counter", "sliding_slots", "sliding_slots, strict: true"]
    {
        let bed = Testbed::create("tcwin")?;
        let rules =
            format!("unit: week, requests_per_unit: 5, count: packets, algorithm: {algorithm}");
        let limiter = limited(&bed, &outgoing_udp(&rules), ["--direction", "out"])?;
        let count = arrived(&bed, &[45, 6, 3, 1, 45, 1, 1])?;
        ensure!(count == 5, "{count} datagrams of 5: {algorithm}");
        limiter.close()?;
        bed.close()?;
    }
    Ok(())
}

/// Datagrams of a super-frame, super-frames of the limit in a second, and those at once.
const SEGMENTS: u16 = 20;
const FRAMES: u32 = 240;
const AT_ONCE: u32 = 12;

/// Over time, a limit in bytes lets exactly as much pass as an exact bucket, out and in, of
/// super-frames and of packets.
#[test]
fn a_rate_of_bytes_is_held_exactly_whatever_the_offloads() -> Result<()> {
    require_root();
    let frame = (u64::from(DATAGRAM) + HEADERS) * u64::from(SEGMENTS);
    let (rate, burst) = (frame * u64::from(FRAMES), frame * u64::from(AT_ONCE));
    let interrupt = Interrupt::watch()?;
    for (is_out, segments) in [(true, SEGMENTS), (true, 1), (false, SEGMENTS), (false, 1)] {
        let bed = Testbed::create("tcrate")?;
        let direction = if is_out { "out" } else { "in" };
        let rules = outgoing_udp(&format!(
            "unit: second, requests_per_unit: {rate}, burst: {burst}, count: bytes"
        ));
        let rules = rules.replace("direction: out", &format!("direction: {direction}"));
        let options = if is_out { ["--direction", "out"] } else { ["--hook", "tc"] };
        let limiter = limited(&bed, &rules, options)?;
        let (from, to, at) = if is_out {
            (&bed.receiver, &bed.sender, SENDER.ipv4)
        } else {
            (&bed.sender, &bed.receiver, RECEIVER.ipv4)
        };
        let target = SocketAddr::from((at, 9_000));
        let socket = from.enter(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))??;
        segment(&socket, DATAGRAM)?;
        // Three times the limit.
        let each = u32::from(SEGMENTS / segments);
        let pace = Pace { each, every: Duration::from_secs(1) / (3 * FRAMES) };
        let sent = collect(to, target, pace, Duration::from_secs(2), &interrupt, |number| {
            let mut datagram = number.to_vec();
            datagram.resize(usize::from(DATAGRAM), 0);
            // A frame that is dropped on its way out is no error of every kernel.
            drop(socket.send_to(&datagram.repeat(usize::from(segments)), target));
            Ok(())
        })?;
        let limit = Limit::per_second((FRAMES * each).into(), AT_ONCE * each);
        let expected = bounds::allowed(&sent.times, &limit, Duration::ZERO);
        let arrived = u64::try_from(sent.arrivals.len())?;
        let segments = u64::from(segments);
        let context = format!(
            "{arrived} datagrams, {direction}, {segments} in a frame; frames of {}: {expected:?}",
            sent.times.len()
        );
        ensure!(arrived.is_multiple_of(segments), "{context}");
        ensure!(expected.contains(&(arrived / segments)), "{context}");
        println!("{context}");
        limiter.close()?;
        bed.close()?;
    }
    Ok(())
}
