//! Interfaces without Ethernet headers: the program for them, and a tun interface in both modes.

use std::net::UdpSocket;
use std::time::Duration;

use anyhow::{Result, ensure};
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_datapath::Way;
use limiter_tests::packet::{Extension, Fragment, Frame, Transport};
use limiter_tests::program::Program;
use limiter_tests::root::require_root;
use limiter_tests::sandbox::attached_mode;
use limiter_tests::testbed::Testbed;
use limiter_tests::tun::Tun;

const ADDRESS: [u8; 4] = [198, 51, 100, 1];
const FROM: [u8; 4] = [198, 51, 100, 9];
const PORT: u16 = 4_000;

fn bare(frame: &Frame) -> Vec<u8> {
    frame.build()[14..].to_vec()
}

fn v6() -> Frame {
    let mut from = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    from[15] = 1;
    Frame::ipv6(from, [0xfd; 16])
}

/// A packet has one verdict with and without an Ethernet header, whatever is in it.
#[test]
fn packets_without_ethernet_headers_are_judged_alike() {
    require_root();
    let rules = "descriptors:\n  - {key: remote_address, rate_limit: {unit: day, \
        requests_per_unit: 2}}\n  \
         - {key: destination_port, value: 53, rate_limit: {unit: day, requests_per_unit: 1}}\n";
    let later = Fragment { id: 1, offset: 9, more: false };
    let mut program = Program::load(256, 16).unwrap();
    program.apply_file(rules).unwrap();
    let mut now = 10u64.pow(12);
    for frame in [
        Frame::ipv4(FROM, ADDRESS),
        Frame::ipv4(FROM, ADDRESS).options(&[1; 40]),
        Frame::ipv4(FROM, ADDRESS).fragment(later).payload(&[0; 40]),
        Frame::ipv4(FROM, ADDRESS).transport(Transport::Udp { source: 1, destination: 53 }),
        Frame::ipv4(FROM, ADDRESS).transport(Transport::Echo { id: 1, sequence: 1 }),
        v6(),
        v6().extension(Extension::HopByHop(0)),
        v6().transport(Transport::Udp { source: 1, destination: 53 }),
    ] {
        let mut reasons = Vec::new();
        for layer3 in [false, true] {
            // Ten days later nothing is used up.
            now += 864_000 * 1_000_000_000;
            program.set_time(Ticks::from_nanos(now)).unwrap();
            reasons.push([(); 4].map(|()| {
                if layer3 {
                    program.judge_layer3(&bare(&frame)).unwrap()
                } else {
                    program.judge(&frame.build()).unwrap()
                }
            }));
        }
        assert_eq!(reasons[0], reasons[1], "{frame:?}");
        assert_eq!(reasons[0][3], Reason::OverLimit, "{frame:?}");
    }
}

#[test]
fn what_is_no_packet_without_an_ethernet_header_passes_with_its_reason() {
    require_root();
    let mut program = Program::load(256, 16).unwrap();
    program.apply_file("martians: drop\n").unwrap();
    let v4 = bare(&Frame::ipv4(FROM, ADDRESS));
    let cut = v4[..19].to_vec();
    for (bytes, reason) in [
        (vec![0; 40], Reason::NotIp),
        (vec![0x50; 40], Reason::NotIp),
        (cut, Reason::Truncated),
        (vec![0x60; 39], Reason::Truncated),
        (v4, Reason::NoRule),
        (bare(&Frame::ipv4([127, 0, 0, 1], ADDRESS)), Reason::Martian),
    ] {
        assert_eq!(program.judge_layer3(&bytes).unwrap(), reason, "{bytes:02x?}");
    }
}

/// There is no link address to send an answer to; a mark needs none.
#[test]
fn without_an_ethernet_header_a_packet_is_marked_and_not_answered() {
    require_root();
    let rule = |action: &str| {
        format!(
            "replies: {{unit: second, requests_per_unit: 10}}\ndescriptors: [{{key: \
             remote_address, \
             rate_limit: {{unit: day, requests_per_unit: 1}}, action: {action}}}]\n"
        )
    };
    let packet = bare(&Frame::ipv4(FROM, ADDRESS).payload(&[7; 20]));
    let mut program = Program::load(256, 16).unwrap();
    program.set_time(Ticks::from_nanos(10u64.pow(12))).unwrap();
    program.apply_file(&rule("reject")).unwrap();
    assert_eq!(program.judge_layer3(&packet).unwrap(), Reason::Conforming);
    assert_eq!(program.judge_layer3(&packet).unwrap(), Reason::OverLimit, "and not rejected");
    program.apply_file(&rule("{mark: {dscp: cs1}}")).unwrap();
    let (way, marked) = program.send_layer3(&packet).unwrap();
    assert_eq!(way, Way::Pass);
    assert_eq!(marked[1], 8 << 2, "DSCP 8 in the second byte");
    assert_eq!(marked[12..], packet[12..], "everything behind the checksum is as it was");
    let sum = marked[..20].chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])));
    let sum: u32 = sum.sum();
    assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "the header's checksum");
}

/// Packets that arrive at a real tun interface: as many reach the socket behind it as the limit
/// allows. The driver takes no native XDP: that is refused, and `auto` is generic.
#[test]
fn a_tun_interface_is_limited() -> Result<()> {
    require_root();
    let bed = Testbed::create("tun")?;
    let mut tun = Tun::create(&bed.receiver, "tun0", "198.51.100.1/24")?;
    let socket = bed.receiver.enter(|| UdpSocket::bind(("198.51.100.1", PORT)))??;
    socket.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut limiter = bed.limiter(
        "descriptors:\n  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 1, \
         burst: 8}}\n",
    )?;
    limiter.on("tun0");
    let refused = limiter.run_to_end()?;
    let said = String::from_utf8(refused.stderr)?;
    ensure!(refused.status.code() == Some(2) && said.contains("--mode auto"), "{said}");
    limiter.options(["--mode", "auto"]);
    limiter.start()?;
    ensure!(attached_mode(&limiter.xdp()?) == "generic", "{}", limiter.xdp()?);
    let packet = |last: u8, number: u8| {
        let from = [FROM[0], FROM[1], FROM[2], last];
        let transport = Transport::Udp { source: 40_000, destination: PORT };
        bare(&Frame::ipv4(from, ADDRESS).transport(transport).payload(&[number]))
    };
    for number in 0..20 {
        tun.arrive(&packet(9, number))?;
    }
    // One of another source, so that the end is known.
    tun.arrive(&packet(10, 99))?;
    let mut got = Vec::new();
    let mut buffer = [0; 16];
    while got.last() != Some(&99) {
        let (length, _) = socket.recv_from(&mut buffer)?;
        ensure!(length == 1, "{length} bytes");
        got.push(buffer[0]);
    }
    ensure!(got == [0, 1, 2, 3, 4, 5, 6, 7, 99], "{got:?}");
    let shown = limiter.json(&["show", "198.51.100.9"])?;
    ensure!(shown["passed"] == 8 && shown["dropped"] == 12, "{shown}");
    limiter.close()?;
    bed.close()
}
