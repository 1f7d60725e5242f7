//! Captures built byte by byte, so that every format is covered.

use std::fs;

use limiter_model::Framing;
use limiter_rules::RuleFile;

use super::*;

mod arriving;
mod kinds;

const ETHERNET: u32 = 1;

/// UDP from 192.0.2.`host` to a port.
fn frame(host: u8, port: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, host, 198, 51, 100, 1]);
    frame.extend([4, 210, 0, port, 0, 8, 0, 0]);
    frame
}

/// A number in either byte order.
type Order = fn(u32) -> [u8; 4];
const LITTLE: Order = u32::to_le_bytes;
const BIG: Order = u32::to_be_bytes;

fn pcap(order: Order, magic: u32, link: u32, packets: &[(u32, u32, u32, Vec<u8>)]) -> Vec<u8> {
    let version = if order(1) == 1u32.to_le_bytes() { [2, 0, 4, 0] } else { [0, 2, 0, 4] };
    let mut file = order(magic).to_vec();
    file.extend(version);
    for word in [0, 0, 65_535, link] {
        file.extend(order(word));
    }
    for (seconds, fraction, length, bytes) in packets {
        for word in [*seconds, *fraction, u32::try_from(bytes.len()).unwrap(), *length] {
            file.extend(order(word));
        }
        file.extend(bytes);
    }
    file
}

/// A block of pcapng, little-endian.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let padding = body.len().next_multiple_of(4) - body.len();
    let length = u32::try_from(body.len() + padding + 12).unwrap();
    let mut block = [kind.to_le_bytes(), length.to_le_bytes()].concat();
    block.extend(body);
    block.extend(vec![0; padding]);
    block.extend(length.to_le_bytes());
    block
}

fn section() -> Vec<u8> {
    let mut body = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
    body.extend([1, 0, 0, 0]);
    body.extend([0xff; 8]);
    block(0x0a0d_0d0a, &body)
}

fn option(code: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).unwrap();
    let mut option = [code.to_le_bytes(), length.to_le_bytes()].concat();
    option.extend(value);
    option.resize(option.len().next_multiple_of(4), 0);
    option
}

fn interface(link: u16, options: &[Vec<u8>]) -> Vec<u8> {
    let mut body = link.to_le_bytes().to_vec();
    body.extend([0; 6]);
    body.extend(options.concat());
    body.extend([0; 4]);
    block(1, &body)
}

fn enhanced(interface: u32, time: u64, frame: &[u8], options: &[Vec<u8>]) -> Vec<u8> {
    let length = u32::try_from(frame.len()).unwrap();
    let [high, low] = [time >> 32, time & 0xffff_ffff].map(|half| u32::try_from(half).unwrap());
    let words = [interface, high, low, length, length];
    let mut body: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    body.extend(frame);
    body.resize(body.len().next_multiple_of(4), 0);
    if !options.is_empty() {
        body.extend(options.concat());
        body.extend([0; 4]);
    }
    block(6, &body)
}

fn read(file: &[u8]) -> Result<Vec<Captured>, CaptureError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.pcap");
    fs::write(&path, file).unwrap();
    let mut capture = Capture::open(&path)?;
    let mut packets = Vec::new();
    while let Some(packet) = capture.next_packet()? {
        packets.push(packet);
    }
    Ok(packets)
}

fn refused(file: &[u8]) -> String {
    let text = read(file).unwrap_err().to_string();
    let (_, text) = text.split_once("x.pcap: ").unwrap();
    text.to_owned()
}

fn explainer(rules: &str, interface: Option<Incoming>) -> Explainer {
    let rules = if rules.is_empty() { "descriptors: []" } else { rules };
    let set = RuleFile::parse("r.yaml", rules.as_bytes(), 1522).unwrap().rules;
    Explainer::new(&set, Settings { interface, max_frame: 1522 }).unwrap()
}

fn captured(number: u64, nanos: u64, frame: Vec<u8>) -> Captured {
    let length = frame.len() as u64;
    Captured { number, nanos, frame, length, ..Captured::default() }
}

/// The lists of a file come before its rules, and their ends are of the time of the capture.
#[test]
fn the_lists_of_a_file_are_asked_first() {
    // 2026-01-01T00:00:00Z.
    let began = 1_767_225_600_000_000_000;
    let rules = "allow: [192.0.2.1, {address: 192.0.2.2, until: 2026-01-01T00:00:05Z}, {address: \
                 192.0.2.3, until: 2025-12-30}]\ndeny: [192.0.2.4]\ndescriptors: [{key: \
                 remote_address, rate_limit: {unit: day, requests_per_unit: 1}}]\n";
    let mut explainer = explainer(rules, None);
    let mut reason = |source: u8, seconds: u64| {
        let packet = captured(1, began + seconds * 1_000_000_000, frame(source, 9));
        explainer.decide(&packet).unwrap().reason.name()
    };
    assert_eq!([reason(1, 0), reason(1, 1), reason(1, 2)], ["allowed"; 3]);
    assert_eq!([reason(2, 3), reason(2, 4)], ["allowed"; 2]);
    assert_eq!([reason(2, 5), reason(2, 6)], ["conforming", "over-limit"]);
    assert_eq!([reason(3, 7), reason(3, 8)], ["conforming", "over-limit"]);
    assert_eq!([reason(4, 9), reason(4, 10)], ["denied"; 2]);
}

#[test]
fn pcap_of_every_order_and_resolution_is_read() {
    let packets = [(10, 7, 42, frame(1, 9)), (11, 8, 1500, frame(1, 9)[..30].to_vec())];
    for (order, magic, nanos) in [
        (LITTLE, 0xa1b2_c3d4, 7000),
        (LITTLE, 0xa1b2_3c4d, 7),
        (BIG, 0xa1b2_c3d4, 7000),
        (BIG, 0xa1b2_3c4d, 7),
    ] {
        let read = read(&pcap(order, magic, ETHERNET, &packets)).unwrap();
        assert_eq!(read.len(), 2, "{magic:x}");
        assert_eq!((read[0].number, read[0].nanos), (1, 10_000_000_000 + nanos), "{magic:x}");
        assert_eq!((read[0].frame.as_slice(), read[0].length), (&*frame(1, 9), 42));
        assert_eq!((read[1].number, read[1].frame.len(), read[1].length), (2, 30, 1500));
        assert!(!read[0].is_cut() && read[1].is_cut());
    }
}

/// If nanoseconds were read under a header for microseconds, times would be minutes apart.
#[test]
fn a_fraction_of_more_than_a_second_is_refused() {
    for (magic, least) in [(0xa1b2_c3d4, 1_000_000), (0xa1b2_3c4d, 1_000_000_000)] {
        for order in [LITTLE, BIG] {
            let of = |fraction| {
                let packets = [(10, 7, 42, frame(1, 9)), (11, fraction, 42, frame(1, 9))];
                read(&pcap(order, magic, ETHERNET, &packets))
            };
            assert_eq!(of(least - 1).unwrap().len(), 2);
            let error = of(least).unwrap_err().to_string();
            assert!(error.contains("packet 2: its fraction of a second"), "{error}");
        }
    }
}

#[test]
fn pcapng_has_a_time_of_its_own_for_each_interface() {
    let resolution = |value: u8| option(9, &[value]);
    let mut file = section();
    file.extend(interface(1, &[option(2, b"eth0"), resolution(9)]));
    file.extend(interface(1, &[]));
    file.extend(interface(1, &[resolution(0x8a), option(14, &3i64.to_le_bytes())]));
    file.extend(enhanced(0, 5_000_000_001, &frame(1, 9), &[]));
    file.extend(enhanced(1, 5_000_001, &frame(2, 9), &[option(2, &[2, 0, 0, 0])]));
    file.extend(enhanced(2, 1024 + 512, &frame(3, 9), &[option(2, &[1, 0, 0, 0])]));
    // A block of an unknown type is passed over.
    file.extend(block(0x0bad, &[1, 2, 3, 4]));
    // Each section has its own interfaces.
    file.extend(section());
    file.extend(interface(1, &[]));
    file.extend(enhanced(0, 6, &frame(4, 9), &[]));
    let read = read(&file).unwrap();
    let all: Vec<_> = read
        .iter()
        .map(|packet| (packet.number, packet.nanos, packet.interface.as_deref(), packet.outbound))
        .collect();
    assert_eq!(
        all,
        [
            (1, 5_000_000_001, Some("eth0"), false),
            (2, 5_000_001_000, None, true),
            (3, 4_500_000_000, None, false),
            (4, 6000, None, false),
        ]
    );
}

#[test]
fn a_large_block_is_read_and_one_too_large_is_refused() {
    let mut large = frame(1, 9);
    large.resize(120_000, 0);
    let packets = [(1, 0, 120_000, large.clone()), (2, 0, 42, frame(1, 9)), (3, 0, 9, large)];
    let read_all = read(&pcap(LITTLE, 0xa1b2_c3d4, ETHERNET, &packets)).unwrap();
    assert_eq!(read_all.iter().map(|packet| packet.frame.len()).sum::<usize>(), 240_042);
    let mut file = pcap(LITTLE, 0xa1b2_c3d4, ETHERNET, &packets[..1]);
    for word in [1, 0, u32::MAX, 42] {
        file.extend(u32::to_le_bytes(word));
    }
    file.extend(vec![0; 20_000_000]);
    assert!(refused(&file).starts_with("packet 2: a block of more than 16 MiB: what is printed"));
}

#[test]
fn what_cannot_be_explained_is_named() {
    let packets = [(1, 0, 42, frame(1, 9)), (2, 0, 42, frame(1, 9))];
    let link = |link| refused(&pcap(LITTLE, 0xa1b2_c3d4, link, &packets));
    assert!(link(127).starts_with("link type 127 (wireless), none of Ethernet (1), raw IP (101)"));
    assert!(link(127).ends_with("capture on an interface of these, not in monitor mode"));
    assert!(link(4711).contains("link type 4711 (unknown here)"));
    let whole = pcap(LITTLE, 0xa1b2_c3d4, ETHERNET, &packets);
    for cut in [1, 20, 42, 50, 57] {
        let text = refused(&whole[..whole.len() - cut]);
        assert!(text.starts_with("it ends within packet 2"), "{cut}: {text}");
    }
    assert_eq!(read(&whole[..whole.len() - 58]).unwrap().len(), 1);
    assert!(refused(b"not a capture at all").starts_with("neither pcap nor pcapng"));
    assert!(refused(b"").starts_with("it is empty: "));
    let mut simple = [section(), interface(1, &[])].concat();
    simple.extend(block(3, &[42, 0, 0, 0, 1, 2, 3, 4]));
    assert!(refused(&simple).starts_with("packet 1: it has no time"));
    let stranger = [section(), enhanced(0, 1, &frame(1, 9), &[])].concat();
    assert!(refused(&stranger).starts_with("packet 1: it names no interface"));
    let mut wireless = [section(), interface(105, &[])].concat();
    wireless.extend(enhanced(0, 1, &frame(1, 9), &[]));
    assert!(refused(&wireless).contains("wireless"));
    let missing = Capture::open(std::path::Path::new("/nowhere/x.pcap")).unwrap_err();
    assert!(missing.to_string().starts_with("/nowhere/x.pcap: No such file"));
}

#[test]
fn limits_go_by_the_time_of_the_capture() {
    let rules = "descriptors:
  - {key: remote_address, value: 192.0.2.0/24, rate_limit: {name: net, unit: second, \
                 requests_per_unit: 2, burst: 1}}\n";
    let mut explainer = explainer(rules, None);
    let start = 1_700_000_000_000_000_000;
    let reasons: Vec<_> = [0u64, 1_000_000, 499_000_000, 500_000_000, 900_000_000]
        .into_iter()
        .zip(1..)
        .map(|(after, number)| {
            explainer.decide(&captured(number, start + after, frame(1, 9))).unwrap().reason
        })
        .collect();
    let (yes, no) = (Reason::Conforming, Reason::OverLimit);
    assert_eq!(reasons, [yes, no, no, yes, no]);
    // An older one, of another queue: as if no time had gone by.
    assert_eq!(explainer.decide(&captured(6, start - 5, frame(1, 9))).unwrap().reason, no);
    let (decided, matches) = explainer.packet(&captured(7, start, frame(2, 9))).unwrap();
    let [found] = matches.as_slice() else { panic!("{matches:?}") };
    let (rule, name) = (found.rule.path.to_string(), found.rule.called());
    assert_eq!((found.table, &*rule, name.as_deref()), (0, "192.0.2.0/24", Some("net")));
    assert_eq!(explainer.rule_name(decided.rule), Some("192.0.2.0/24"));
    assert_eq!(explainer.seen().packets, 7);
    let [(rule, counters)] = explainer.rules()[..] else { panic!() };
    assert_eq!((rule, counters.passed.packets, counters.dropped.packets), (decided.rule, 3, 4));
    assert_eq!(explainer.called(rule), Some("net"));
}

#[test]
fn windows_of_the_wall_clock_are_those_of_the_capture() {
    let rules = "descriptors:
  - {key: destination_port, rate_limit: {unit: minute, requests_per_unit: 1, algorithm: \
                 fixed_window}}\n";
    // A minute begins at a multiple of 60 s since 1970.
    let minute: u64 = 1_700_000_040_000_000_000;
    assert_eq!(minute % 60_000_000_000, 0);
    for start in [minute - 1_000_000_000, 59_000_000_000] {
        let mut explainer = explainer(rules, None);
        let mut at = |after: u64, number| {
            explainer.decide(&captured(number, start + after, frame(1, 9))).unwrap().reason
        };
        assert_eq!(at(0, 1), Reason::Conforming);
        assert_eq!(at(999_999_999, 2), Reason::OverLimit);
        assert_eq!(at(1_000_000_000, 3), Reason::Conforming);
        assert_eq!(at(2_000_000_000, 4), Reason::OverLimit);
    }
}

#[test]
fn rules_that_share_a_budget_are_distinguished() {
    let rules = "budgets:
  - {name: shared, rate_limit: {unit: second, requests_per_unit: 1, burst: 2}}
descriptors:
  - {key: destination_port, value: 53, budget: shared}
  - {key: destination_port, value: 80, budget: shared}
  - {key: remote_address, rate_limits: [{unit: second, requests_per_unit: 9}, {unit: day, \
                 requests_per_unit: 99}]}\n";
    let mut explainer = explainer(rules, None);
    let mut rules_of = |number, port| {
        let (decided, matches) = explainer.packet(&captured(number, 1, frame(1, port))).unwrap();
        let rules = matches.iter().map(|found| (found.table > 0, found.rule.path.to_string()));
        let rules: Vec<_> = rules.collect();
        (rules, decided.reason, explainer.rule_name(decided.rule).map(str::to_owned))
    };
    let source = (false, "every source".to_owned());
    let port = |port| (true, format!("destination_port={port}"));
    assert_eq!(rules_of(1, 53).0, [source.clone(), port(53)]);
    assert_eq!(rules_of(2, 80).0, [source.clone(), port(80)]);
    assert_eq!(rules_of(3, 81).0, std::slice::from_ref(&source));
    let (rules, reason, by) = rules_of(4, 80);
    assert_eq!((rules, reason), (vec![source, port(80)], Reason::OverLimit));
    assert_eq!(by.as_deref(), Some("budget shared"));
}

/// The rule on all packets is placed as a budget, and has the name that its author gave it.
#[test]
fn a_rule_without_keys_keeps_its_name() {
    let limit = "rate_limit: {unit: second, requests_per_unit: 1}";
    let mut explainer =
        explainer(&format!("descriptors: [{{key: generic_key, value: uplink, {limit}}}]"), None);
    let (_, matches) = explainer.packet(&captured(1, 1, frame(1, 9))).unwrap();
    let [found] = matches.as_slice() else { panic!("{matches:?}") };
    assert_eq!(found.rule.called().as_deref(), Some("uplink"));
    assert_eq!(explainer.rule_name(found.number), Some("every packet"));
    assert_eq!(explainer.called(found.number), Some("uplink"));
}

#[test]
fn the_interface_is_the_one_that_was_named_or_the_capture_s() {
    let rules = "descriptors:
  - {key: interface, value: eth1, rate_limit: {unit: day, requests_per_unit: 1, burst: 1}}\n";
    let matches = |interface: Option<Incoming>, of_capture: Option<&str>| {
        let mut explainer = explainer(rules, interface);
        let mut packet = captured(1, 1, frame(1, 9));
        packet.interface = of_capture.map(std::rc::Rc::from);
        explainer.packet(&packet).unwrap().1.len()
    };
    assert_eq!(matches(None, None), 0);
    assert_eq!(matches(None, Some("eth1")), 1);
    assert_eq!(matches(None, Some("eth0")), 0);
    assert_eq!(matches(Some(Incoming::Name("eth1".into())), Some("eth0")), 1);
    assert_eq!(matches(Some(Incoming::Index(1)), Some("eth1")), 0);
}

#[test]
fn exempt_packets_have_no_source_and_no_rule() {
    let mut explainer = explainer("", None);
    let arp = [&frame(1, 9)[..12], &[8, 6], &[0; 28]].concat();
    let (decided, matches) = explainer.packet(&captured(1, 1, arp)).unwrap();
    assert_eq!((decided.source, decided.reason), (None, Reason::NotIp));
    assert!(matches.is_empty());
    // The whole length counts, also of what was not captured.
    let cut = Captured { length: 9000, ..captured(2, 1, frame(1, 9)) };
    assert_eq!(explainer.decide(&cut).unwrap().reason, Reason::NoRule);
    assert_eq!(explainer.seen().bytes, 9042);
}

#[test]
fn state_is_bounded_and_the_packet_is_named() {
    let rules = "descriptors:
  - {key: remote_address, rate_limit: {unit: second, requests_per_unit: 2}}
  - {key: destination_port, rate_limit: {unit: second, requests_per_unit: 200}}\n";
    let mut explainer = explainer(rules, None);
    explainer.room = Some(explainer.bytes() + 20_000);
    // A source each, of another /24.
    let mut sent = 0;
    let error = loop {
        let mut of_another = frame(1, 9);
        sent += 1;
        of_another[26..30].copy_from_slice(&u32::to_be_bytes(0x0a00_0000 + (sent << 8)));
        if let Err(error) = explainer.packet(&captured(sent.into(), 1, of_another)) {
            break error.to_string();
        }
        assert!(sent < 10_000, "nothing is bounded");
    };
    assert!(error.starts_with(&format!("packet {sent}: the sources, keys, flows")), "{error}");
    assert!(error.contains("300 MB of memory, and that is the most"), "{error}");
    assert!(error.ends_with(&format!("(`editcap -r FILE PART 1-{}`)", sent - 1)), "{error}");
}

/// A tun interface delivers the same packets without their Ethernet headers.
#[test]
fn captures_of_raw_ip_are_explained_alike() {
    let rules =
        "descriptors: [{key: remote_address, rate_limit: {unit: day, requests_per_unit: 1}}]";
    let cut = |bare: bool| if bare { frame(1, 9)[14..].to_vec() } else { frame(1, 9) };
    let explained = |link: u32| {
        let bare = link != ETHERNET;
        let length = if bare { 28 } else { 42 };
        let packets = [(1, 0, length, cut(bare)), (2, 0, length, cut(bare))];
        let file = pcap(LITTLE, 0xa1b2_c3d4, link, &packets);
        let mut explainer = explainer(rules, None);
        let packets = read(&file).unwrap();
        packets.iter().map(|packet| explainer.packet(packet).unwrap()).collect::<Vec<_>>()
    };
    let ethernet = explained(ETHERNET);
    assert_eq!(ethernet[1].0.reason, Reason::OverLimit);
    for link in [12, 14, 101, 228, 229] {
        assert_eq!(explained(link), ethernet, "link type {link}");
    }
    let of_section = [section(), interface(101, &[]), enhanced(0, 5, &cut(true), &[])].concat();
    assert_eq!(read(&of_section).unwrap()[0].framing, Framing::Layer3);
}
