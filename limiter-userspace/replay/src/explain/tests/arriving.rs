//! Parts of a capture other than the packets that came in: cooked headers, answers of the host,
//! packets that occur twice, and compression.

use std::io::Write as _;
use std::net::IpAddr;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

/// A packet as `tcpdump -i any` writes it, with either header.
fn cooked(second: bool, hardware: u16, kind: u8, frame: &[u8]) -> Vec<u8> {
    let protocol = [frame[12], frame[13]];
    let header = if second {
        let [a, b] = hardware.to_be_bytes();
        [&protocol[..], &[0, 0, 0, 0, 0, 7, a, b, kind, 6], &frame[6..12], &[0, 0]].concat()
    } else {
        let hardware = hardware.to_be_bytes();
        [&[0, kind][..], &hardware, &[0, 6], &frame[6..12], &[0, 0], &protocol].concat()
    };
    [header, frame[14..].to_vec()].concat()
}

/// An Ethernet frame with a VLAN tag.
fn tagged(frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat()
}

/// Captures on `any` keep the interface's frame, its length and its direction.
#[test]
fn cooked_captures_are_the_frames_that_they_were_made_of() {
    for (link, second) in [(113, false), (276, true)] {
        for plain in [frame(1, 9), tagged(&frame(1, 9))] {
            let at = |kind| cooked(second, 1, kind, &plain);
            let length = u32::try_from(at(0).len()).unwrap();
            let packets: Vec<_> = (0..5).map(|kind| (1, 0, length + 100, at(kind))).collect();
            let read = read(&pcap(LITTLE, 0xa1b2_c3d4, link, &packets)).unwrap();
            assert_eq!(read.len(), 5);
            for (packet, kind) in read.iter().zip(0..) {
                assert_eq!(packet.frame[6..], plain[6..], "{link} {kind}");
                assert_eq!(packet.length, plain.len() as u64 + 100, "{link} {kind}");
                assert_eq!(packet.outbound, kind == 4, "{link} {kind}");
                assert_eq!(packet.index, second.then_some(7));
            }
        }
        // A tunnel has no Ethernet header, and the loopback has one.
        for (hardware, framing) in [(65_534, Framing::Layer3), (772, Framing::Ethernet)] {
            let packets = [(1, 0, 100, cooked(second, hardware, 0, &frame(1, 9)))];
            let read = read(&pcap(LITTLE, 0xa1b2_c3d4, link, &packets)).unwrap();
            assert_eq!(read[0].framing, framing, "{link} {hardware}");
            assert_eq!(read[0].source(), captured(1, 1, frame(1, 9)).source());
        }
        // Cut off within its header: no source, and no panic.
        for cut in 0..20 {
            let packets = [(1, 0, 100, cooked(second, 1, 0, &frame(1, 9))[..cut].to_vec())];
            let read = read(&pcap(LITTLE, 0xa1b2_c3d4, link, &packets)).unwrap();
            assert_eq!(read[0].source(), None, "{link} {cut}");
        }
        let section = [section(), interface(u16::try_from(link).unwrap(), &[])].concat();
        let file = [section, enhanced(0, 5, &cooked(second, 1, 0, &frame(1, 9)), &[])].concat();
        assert_eq!(read(&file).unwrap()[0].frame[6..], frame(1, 9)[6..]);
    }
}

fn arrivals(file: &[u8], own: &Own) -> (Vec<u64>, LeftOut) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.pcap");
    fs::write(&path, file).unwrap();
    let mut arrivals = Arrivals::open(&path, own, false).unwrap();
    let mut numbers = Vec::new();
    while let Some(packet) = arrivals.next_packet().unwrap() {
        numbers.push(packet.number);
    }
    (numbers, arrivals.left_out())
}

/// The direction that a packet states takes precedence over its addresses.
#[test]
fn a_packet_that_says_that_it_came_in_is_judged() {
    let from = IpAddr::from([192, 0, 2, 1]);
    let mut file = [section(), interface(1, &[])].concat();
    let flags = |way: u8| option(2, &[way, 0, 0, 0]);
    for options in [vec![], vec![flags(1)], vec![flags(2)], vec![flags(0)]] {
        file.extend(enhanced(0, 5, &frame(1, 9), &options));
    }
    let (numbers, left_out) = arrivals(&file, &Own::Named(vec![from]));
    assert_eq!((numbers, left_out.outgoing), (vec![2], 1));
    assert_eq!(left_out.own.get(&from), Some(&2));
}

/// As written by `xdpdump --rx-capture entry,exit`: with numbers and without.
#[test]
fn a_packet_at_several_places_of_its_way_counts_once() {
    let names =
        [[&b"eth0:limiter()@fentry"[..], b"eth0:limiter()@fexit"], [b"eth0@fentry", b"eth0@fexit"]];
    for [entry, exit] in names {
        for numbered in [true, false] {
            let mut file = section();
            file.extend(interface(1, &[option(2, entry)]));
            file.extend(interface(1, &[option(2, exit)]));
            for packet in 0..10u64 {
                let mut options = vec![option(2, &[1, 0, 0, 0])];
                if numbered {
                    options.push(option(5, &(packet + 1).to_le_bytes()));
                }
                file.extend(enhanced(0, packet, &frame(1, 9), &options));
                file.extend(enhanced(1, packet, &frame(1, 9), &options));
            }
            let (numbers, left_out) = arrivals(&file, &Own::default());
            assert_eq!((numbers.len(), left_out.again), (10, 10), "{numbered}");
            let read = read(&file).unwrap();
            assert_eq!(read[0].interface.as_deref(), Some("eth0"));
        }
        // Behind the program alone, no packet is there twice.
        let mut file = [section(), interface(1, &[option(2, exit)])].concat();
        for packet in 0..10u64 {
            let options = [option(5, &(packet + 1).to_le_bytes())];
            file.extend(enhanced(0, packet, &frame(1, 9), &options));
        }
        assert_eq!(arrivals(&file, &Own::default()).0.len(), 10);
    }
    // Invalid numbers do not affect the packets of one interface.
    let mut file = [section(), interface(1, &[])].concat();
    for packet in 0..10u64 {
        file.extend(enhanced(0, packet, &frame(1, 9), &[option(5, &[0; 8])]));
    }
    assert_eq!(arrivals(&file, &Own::default()).0.len(), 10);
}

/// Packets to the host of [`frame`], and its answers.
fn both_ways() -> Vec<u8> {
    let mut packets = Vec::new();
    for turn in 0..60 {
        let there = frame(turn % 6, 9);
        let mut back = there.clone();
        back.copy_within(26..30, 30);
        back[26..30].copy_from_slice(&there[30..34]);
        packets.push((u32::from(turn), 0, 42, there));
        packets.push((u32::from(turn), 1, 42, back));
    }
    pcap(LITTLE, 0xa1b2_c3d4, ETHERNET, &packets)
}

#[test]
fn answers_of_the_host_are_left_out() {
    let host: IpAddr = "198.51.100.1".parse().unwrap();
    let file = both_ways();
    let (numbers, left_out) = arrivals(&file, &Own::default());
    assert_eq!(numbers, (0..60).map(|turn| turn * 2 + 1).collect::<Vec<_>>());
    assert_eq!((left_out.own.get(&host), left_out.recognised), (Some(&60), true));
    let (numbers, left_out) = arrivals(&file, &Own::Named(Vec::new()));
    assert_eq!((numbers.len(), left_out.own.len()), (120, 0));
    let other = "192.0.2.3".parse().unwrap();
    let (numbers, left_out) = arrivals(&file, &Own::Named(vec![other]));
    assert_eq!(
        (numbers.len(), left_out.own.get(&other), left_out.recognised),
        (110, Some(&10), false)
    );
}

#[test]
fn compressed_captures_are_read() {
    let gzip = |bytes: &[u8]| {
        let mut to = GzEncoder::new(Vec::new(), Compression::fast());
        to.write_all(bytes).unwrap();
        to.finish().unwrap()
    };
    let whole = both_ways();
    let packed = gzip(&whole);
    assert_eq!(read(&packed).unwrap(), read(&whole).unwrap());
    assert_eq!(arrivals(&packed, &Own::default()).0.len(), 60);
    // Several parts, as written by tools that compress in parallel.
    let parts = [gzip(&whole[..100]), gzip(&whole[100..])].concat();
    assert_eq!(read(&parts).unwrap().len(), 120);
    // Cut off anywhere: an error, and never a short file that passes for a whole one.
    for cut in 1..packed.len() {
        let text = refused(&packed[..cut]);
        let known =
            ["it ends within", "neither pcap nor", "it is compressed", "its gzip is damaged"];
        assert!(known.iter().any(|start| text.starts_with(start)), "{cut}: {text}");
    }
    let mut damaged = packed.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 8].fill(0xff);
    assert!(!refused(&damaged).is_empty());
    assert!(refused(&gzip(b"no capture")).starts_with("neither pcap nor pcapng"));
    assert!(refused(&gzip(b"")).starts_with("it is empty"));
}
