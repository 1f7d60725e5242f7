//! Unusual captures: other blocks, other links, the other byte order, and truncated files.

use super::*;

const DAY: u64 = 86_400_000_000_000;

#[test]
fn weeks_begin_on_monday_as_the_daemon_s_do() {
    let rules = "descriptors:
  - {key: destination_port, rate_limit: {unit: week, requests_per_unit: 1, algorithm: \
                 fixed_window}}\n";
    // 1970-01-01 was a Thursday: so is the eighth, and the twelfth is a Monday.
    let (thursday, monday) = (7 * DAY, 11 * DAY);
    for first in [thursday - 1, thursday, monday - 1] {
        let mut explainer = explainer(rules, None);
        let mut reason =
            |number, nanos| explainer.decide(&captured(number, nanos, frame(1, 9))).unwrap().reason;
        assert_eq!(reason(1, first), Reason::Conforming);
        assert_eq!(reason(2, thursday.max(first)), Reason::OverLimit);
        assert_eq!(reason(3, monday - 1), Reason::OverLimit);
        assert_eq!(reason(4, monday), Reason::Conforming);
        assert_eq!(reason(5, monday + 7 * DAY - 1), Reason::OverLimit);
    }
}

/// A packet block, the predecessor of enhanced packet blocks.
fn packet_block(order: Order, interface: u16, time: u64, frame: &[u8], flags: u32) -> Vec<u8> {
    let short = |number: u16| {
        let [a, b, c, d] = order(u32::from(number));
        if order(1) == LITTLE(1) { [a, b] } else { [c, d] }
    };
    let length = u32::try_from(frame.len()).unwrap();
    let [high, low] = [time >> 32, time & 0xffff_ffff].map(|half| u32::try_from(half).unwrap());
    let mut body = [short(interface), short(7)].concat();
    body.extend([high, low, length, length + 1].into_iter().flat_map(order));
    body.extend(frame);
    body.resize(body.len().next_multiple_of(4), 0);
    body.extend([short(2), short(4)].concat());
    body.extend(order(flags));
    body.extend([0; 4]);
    ordered(order, 2, &body)
}

/// A block whose body is of a multiple of four bytes, in either order.
fn ordered(order: Order, kind: u32, body: &[u8]) -> Vec<u8> {
    let length = order(u32::try_from(body.len() + 12).unwrap());
    [&order(kind), &length, body, &length].concat()
}

/// A section of big-endian blocks, with an interface whose times are so many seconds behind.
fn big_endian(offset: i64) -> Vec<u8> {
    let mut header = [BIG(0x1a2b_3c4d).as_slice(), &[0, 1, 0, 0]].concat();
    header.extend([0xff; 8]);
    let mut interface = vec![0, 1, 0, 0, 0, 0, 0, 0, 0, 14, 0, 8];
    interface.extend(offset.to_be_bytes());
    interface.extend([0; 4]);
    [ordered(BIG, 0x0a0d_0d0a, &header), ordered(BIG, 1, &interface)].concat()
}

#[test]
fn obsolete_packet_blocks_are_read() {
    let mut file = [section(), interface(1, &[option(2, b"eth0")])].concat();
    file.extend(packet_block(LITTLE, 0, 5_000_001, &frame(1, 9), 1));
    file.extend(enhanced(0, 6_000_000, &frame(2, 9), &[]));
    file.extend(packet_block(LITTLE, 0, 7_000_000, &frame(3, 9), 2));
    file.extend(big_endian(0));
    file.extend(packet_block(BIG, 0, 8_000_000, &frame(4, 9), 0xfe));
    let read = read(&file).unwrap();
    let all: Vec<_> = read.iter().map(|at| (at.number, at.nanos, at.outbound)).collect();
    assert_eq!(
        all,
        [
            (1, 5_000_001_000, false),
            (2, 6_000_000_000, false),
            (3, 7_000_000_000, true),
            (4, 8_000_000_000, true)
        ]
    );
    assert_eq!((&*read[0].frame, read[0].length), (&*frame(1, 9), 43));
    assert_eq!(read[0].interface.as_deref(), Some("eth0"));
    let mut short = [section(), interface(1, &[])].concat();
    short.extend(block(2, &[0; 16]));
    assert!(refused(&short).starts_with("packet 1: a block that is malformed"));
}

#[test]
fn files_of_the_other_byte_order_have_offsets_too() {
    let mut file = big_endian(3);
    file.extend(packet_block(BIG, 0, 1_000_000, &frame(1, 9), 0));
    assert_eq!(read(&file).unwrap()[0].nanos, 4_000_000_000);
}

/// Reads all, and says what was left out.
fn left_out(file: &[u8]) -> (Vec<u64>, Vec<(i32, &'static str, u64)>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.pcap");
    fs::write(&path, file).unwrap();
    let mut capture = Capture::open(&path).unwrap();
    let mut numbers = Vec::new();
    while let Some(packet) = capture.next_packet().unwrap() {
        numbers.push(packet.number);
    }
    (numbers, capture.left_out().collect())
}

#[test]
fn an_interface_of_another_link_type_refuses_nothing_but_its_own_packets() {
    let mut file = [section(), interface(127, &[]), interface(1, &[])].concat();
    file.extend(enhanced(1, 5, &frame(1, 9), &[]));
    assert_eq!(left_out(&file), (vec![1], vec![]));
    file.extend(interface(4711, &[]));
    file.extend(enhanced(2, 5, &frame(1, 9), &[]));
    file.extend(enhanced(0, 5, &frame(1, 9), &[]));
    file.extend(enhanced(1, 5, &frame(1, 9), &[]));
    let others = vec![(127, "wireless", 1), (4711, "unknown here", 1)];
    assert_eq!(left_out(&file), (vec![1, 4], others));
    // A capture of such packets alone is on the wrong interface.
    let alone = [section(), interface(127, &[]), enhanced(0, 5, &frame(1, 9), &[])].concat();
    assert!(refused(&alone).starts_with("link type 127 (wireless)"));
    assert_eq!(left_out(&[section(), interface(127, &[])].concat()), (vec![], vec![]));
}

#[test]
fn what_is_cut_off_says_where() {
    let whole = pcap(LITTLE, 0xa1b2_c3d4, ETHERNET, &[(1, 0, 42, frame(1, 9))]);
    assert_eq!(read(&whole[..24]).unwrap(), []);
    let header = "it ends within its header, before the first packet";
    assert!(refused(&whole[..23]).starts_with(header));
    assert!(refused(&whole[..4]).starts_with(header));
    let blocks = [section(), interface(1, &[]), enhanced(0, 1, &frame(1, 9), &[])].concat();
    for cut in [8, 11, 27] {
        assert!(refused(&blocks[..cut]).starts_with(header), "{cut}");
    }
    assert_eq!(read(&section()).unwrap(), []);
    let text = refused(&blocks[..blocks.len() - 1]);
    assert!(text.starts_with("it ends within a block at or before packet 1: it was"), "{text}");
    let mut lies = section();
    lies[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(refused(&lies).starts_with("neither pcap nor pcapng"));
}

/// A length that no program writes is not a sign of a truncated file: the file is damaged, or its
/// records have another header, as in some old distributions.
#[test]
fn what_is_of_another_kind_was_not_cut_off() {
    let packets: Vec<_> = (0..4).map(|n| (n, 0, 42, frame(1, 9))).collect();
    let other = "packet 2: more bytes of it than programs write, as where the file is damaged";
    for order in [LITTLE, BIG] {
        let whole = pcap(order, 0xa1b2_c3d4, ETHERNET, &packets);
        for length in [262_145, 1 << 24, 1 << 31, u32::MAX] {
            let mut damaged = whole[..24 + 58 + 20].to_vec();
            damaged[24 + 58 + 8..][..4].copy_from_slice(&order(length));
            assert!(refused(&damaged).starts_with(other), "{length}");
        }
    }
    // Two bytes more in each head, as in one kind of pcap.
    let whole = pcap(LITTLE, 0xa1b2_c3d4, ETHERNET, &packets);
    let mut wider = whole[..24].to_vec();
    for record in whole[24..].chunks(58) {
        wider.extend([&record[..16], &[0; 2], &record[16..]].concat());
    }
    assert!(refused(&wider).starts_with(other), "{}", refused(&wider));
    let mut blocks = [section(), interface(1, &[]), enhanced(0, 1, &frame(1, 9), &[])].concat();
    let end = blocks.len();
    blocks.extend(enhanced(0, 2, &frame(1, 9), &[]));
    blocks[end + 4..][..4].copy_from_slice(&(u32::MAX - 3).to_le_bytes());
    assert!(refused(&blocks).starts_with("packet 2: a block of more than 16 MiB: what is printed"));
}

#[test]
fn what_is_to_be_unpacked_is_named() {
    for (magic, name, tool) in [
        (&[0x28, 0xb5, 0x2f, 0xfd][..], "zstd", "zstd -dc"),
        (&[0xfd, 0x37, 0x7a, 0x58, 0x5a, 0], "xz", "xz -dc"),
        (b"BZh91AY", "bzip2", "bzip2 -dc"),
        (&[4, 0x22, 0x4d, 0x18], "lz4", "lz4 -dc"),
    ] {
        let remedy = format!(
            "it is compressed ({name}): unpack it, as in `{tool} FILE | limiter explain --pcap -`"
        );
        assert_eq!(refused(magic), remedy);
    }
}
