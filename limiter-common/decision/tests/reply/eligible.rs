//! Every kind of packet that must stay without an answer, one case each.

use limiter_decision::packet::Facts;
use limiter_decision::reply::{self, ReplyKind};

use crate::cause::{V4_FROM, V6_FROM, from, icmp, insert, protocol, tcp, to, udp, v4, v6, with};
use crate::eligible;

const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// `::ffff:192.0.2.1`, in a packet that is IPv6.
const MAPPED: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1];

/// An address of IPv6 with these first and last bytes, and zeros between.
fn v6_address(first: u8, last: u8) -> [u8; 16] {
    let mut address = [0; 16];
    address[0] = first;
    address[15] = last;
    address
}

fn all(cases: &[(&str, Vec<u8>)], expected: Option<ReplyKind>) {
    for (name, frame) in cases {
        assert_eq!(eligible(frame), expected, "{name}");
    }
}

#[test]
fn answered() {
    use ReplyKind::{ResetV4, ResetV6, UnreachableV4, UnreachableV6};
    for (name, frame, expected) in [
        ("UDP", udp(v4()), UnreachableV4),
        ("UDP over IPv6", udp(v6()), UnreachableV6),
        ("ESP", protocol(v4(), 50), UnreachableV4),
        ("ESP over IPv6", protocol(v6(), 50), UnreachableV6),
        ("GRE", protocol(v4(), 47), UnreachableV4),
        ("no next header", protocol(v6(), 59), UnreachableV6),
        ("echo request", icmp(v4(), 8), UnreachableV4),
        ("echo request over IPv6", icmp(v6(), 128), UnreachableV6),
        ("SYN", tcp(v4(), SYN), ResetV4),
        ("SYN over IPv6", tcp(v6(), SYN), ResetV6),
        ("ACK", tcp(v4(), ACK), ResetV4),
        ("every flag but RST", tcp(v4(), !RST), ResetV4),
        ("no flag", tcp(v6(), 0), ResetV6),
        ("don't fragment", with(udp(v4()), 6, &[0x40, 0]), UnreachableV4),
        ("link-local", from(udp(v4()), &[169, 254, 1, 1]), UnreachableV4),
        ("link-local over IPv6", from(udp(v6()), &v6_address(0xfe, 1)), UnreachableV6),
    ] {
        assert_eq!(eligible(&frame), Some(expected), "{name}");
    }
}

#[test]
fn tags_do_not_matter() {
    let tag = [0x81, 0, 0, 7];
    for (frame, kind) in
        [(udp(v4()), ReplyKind::UnreachableV4), (tcp(v6(), SYN), ReplyKind::ResetV6)]
    {
        let mut tagged = frame;
        for _ in 0..2 {
            tagged.splice(12..12, tag);
            assert_eq!(eligible(&tagged), Some(kind));
        }
    }
}

#[test]
fn groups_on_the_link() {
    for ip in [udp(v4()), udp(v6()), tcp(v4(), SYN), tcp(v6(), SYN), icmp(v4(), 8)] {
        for at in [0, 6] {
            let with_address = |address: [u8; 6]| {
                let mut frame = ip.clone();
                frame[at..at + 6].copy_from_slice(&address);
                eligible(&frame)
            };
            assert_eq!(with_address([0xff; 6]), None, "broadcast at {at}");
            assert_eq!(with_address([0x01, 0, 0x5e, 0, 0, 1]), None, "IPv4 multicast at {at}");
            assert_eq!(with_address([0x33, 0x33, 0, 0, 0, 1]), None, "IPv6 multicast at {at}");
            assert_eq!(with_address([1, 0, 0, 0, 0, 0]), None, "the bit alone at {at}");
            assert!(with_address([0xfe, 0xff, 0xff, 0xff, 0xff, 0xff]).is_some(), "one at {at}");
            assert!(with_address([0; 6]).is_some(), "zero at {at}, as on the loopback device");
        }
    }
}

#[test]
fn fragments() {
    let v6_fragment = |position: [u8; 2]| {
        let [high, low] = position;
        let header = [17, 0, high, low, 0, 0, 0, 7];
        with(insert(udp(v6()), 40, &header), 6, &[44])
    };
    all(
        &[
            ("first", with(udp(v4()), 6, &[0x20, 0])),
            ("later", with(udp(v4()), 6, &[0x20, 1])),
            ("last", with(udp(v4()), 6, &[0, 1])),
            ("first, TCP", with(tcp(v4(), SYN), 6, &[0x20, 0])),
            ("first over IPv6", v6_fragment([0, 1])),
            ("later over IPv6", v6_fragment([0, 9])),
            ("last over IPv6", v6_fragment([0, 8])),
            ("atomic", v6_fragment([0, 0])),
        ],
        None,
    );
}

#[test]
fn headers_between() {
    let extension = |kind| with(insert(udp(v6()), 40, &[17, 0, 1, 4, 0, 0, 0, 0]), 6, &[kind]);
    let syn = insert(tcp(v6(), SYN), 40, &[6, 0, 1, 4, 0, 0, 0, 0]);
    let authentication = [17, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1];
    all(
        &[
            ("IPv4 options", with(insert(udp(v4()), 20, &[1; 4]), 0, &[0x46])),
            ("IPv4 options, TCP", with(insert(tcp(v4(), SYN), 20, &[1; 40]), 0, &[0x4f])),
            ("authentication header", with(insert(udp(v4()), 20, &authentication), 9, &[51])),
            ("hop-by-hop options", extension(0)),
            ("routing", extension(43)),
            ("destination options", extension(60)),
            ("destination options, TCP", with(syn, 6, &[60])),
        ],
        None,
    );
}

#[test]
fn transport_header_not_reached() {
    let mut deep = udp(v6());
    for _ in 0..7 {
        deep = insert(deep, 40, &[60, 0, 1, 4, 0, 0, 0, 0]);
    }
    all(
        &[
            ("IPv4 header length below its minimum", with(udp(v4()), 0, &[0x44])),
            ("IPv4 header length past the frame", with(tcp(v4(), SYN)[..40].to_vec(), 0, &[0x4f])),
            ("ports cut", udp(v4())[..14 + 20 + 3].to_vec()),
            ("ports cut over IPv6", udp(v6())[..14 + 40 + 3].to_vec()),
            ("TCP flags cut", tcp(v4(), SYN)[..14 + 20 + 13].to_vec()),
            ("TCP flags cut over IPv6", tcp(v6(), SYN)[..14 + 40 + 13].to_vec()),
            ("ICMP code cut", icmp(v4(), 8)[..35].to_vec()),
            ("too deep", with(deep, 6, &[60])),
        ],
        None,
    );
    assert_eq!(reply::eligible(&Facts::EMPTY, &[0; 12]), None);
}

#[test]
fn sources_that_no_host_has() {
    // The answer of a host that would be one to a packet from it must not be sent, too.
    for end in [from, to] {
        for (name, address) in [
            ("unspecified", [0, 0, 0, 0]),
            ("this network", [0, 255, 255, 255]),
            ("loopback", [127, 0, 0, 1]),
            ("all of loopback", [127, 255, 255, 255]),
            ("multicast", [224, 0, 0, 1]),
            ("multicast, last", [239, 255, 255, 255]),
            ("reserved", [240, 0, 0, 0]),
            ("limited broadcast", [255, 255, 255, 255]),
        ] {
            for frame in [udp(v4()), tcp(v4(), SYN), icmp(v4(), 8)] {
                assert_eq!(eligible(&end(frame, &address)), None, "{name}");
            }
        }
        for (name, address) in [
            ("unspecified", v6_address(0, 0)),
            ("loopback", v6_address(0, 1)),
            ("multicast", v6_address(0xff, 0)),
            ("all nodes", {
                let mut all = v6_address(0xff, 1);
                all[1] = 2;
                all
            }),
            ("IPv4-mapped", MAPPED),
            ("IPv4-mapped, first", {
                let mut first = MAPPED;
                first[12..].fill(0);
                first
            }),
            ("IPv4-mapped, last", {
                let mut last = MAPPED;
                last[12..].fill(0xff);
                last
            }),
        ] {
            for frame in [udp(v6()), tcp(v6(), SYN), icmp(v6(), 128)] {
                assert_eq!(eligible(&end(frame, &address)), None, "{name} over IPv6");
            }
        }
        for address in [[1, 0, 0, 0], [126, 255, 255, 255], [128, 0, 0, 0], [223, 255, 255, 255]] {
            assert!(eligible(&end(udp(v4()), &address)).is_some(), "{address:?}");
        }
        let mut beside = MAPPED;
        beside[11] = 0xfe;
        let mut above = MAPPED;
        above[7] = 1;
        let mut high = v6_address(0, 1);
        high[7] = 1;
        for address in [v6_address(0, 2), v6_address(0xfe, 0), beside, above, high] {
            assert!(eligible(&end(udp(v6()), &address)).is_some(), "{address:?}");
        }
    }
}

#[test]
fn source_is_destination() {
    all(
        &[
            ("UDP", to(udp(v4()), &V4_FROM)),
            ("SYN", to(tcp(v4(), SYN), &V4_FROM)),
            ("UDP over IPv6", to(udp(v6()), &V6_FROM)),
            ("SYN over IPv6", to(tcp(v6(), SYN), &V6_FROM)),
        ],
        None,
    );
    // Half of an address is not the address.
    let mut half = V6_FROM;
    half[7] ^= 1;
    assert!(eligible(&to(udp(v6()), &half)).is_some());
    let mut half = V6_FROM;
    half[8] ^= 1;
    assert!(eligible(&to(udp(v6()), &half)).is_some());
}

#[test]
fn icmp_other_than_an_echo_request() {
    for kind in 0..=255 {
        assert_eq!(eligible(&icmp(v4(), kind)).is_some(), kind == 8, "type {kind}");
        assert_eq!(eligible(&icmp(v6(), kind)).is_some(), kind == 128, "ICMPv6, type {kind}");
    }
    let v6_over_v4 = with(protocol(v4(), 58), 20, &[128, 0]);
    let v4_over_v6 = with(protocol(v6(), 1), 40, &[8, 0]);
    all(&[("ICMPv6 over IPv4", v6_over_v4), ("ICMP over IPv6", v4_over_v6)], None);
}

#[test]
fn resets() {
    for flags in 0..=255 {
        let expected = flags & RST == 0;
        assert_eq!(eligible(&tcp(v4(), flags)).is_some(), expected, "{flags:#04x}");
        assert_eq!(eligible(&tcp(v6(), flags)).is_some(), expected, "{flags:#04x} over IPv6");
    }
}

/// The frames that the cases above start from.
#[test]
fn causes_are_valid() {
    for frame in [udp(v4()), udp(v6()), tcp(v4(), SYN), tcp(v6(), ACK)] {
        assert!(etherparse::SlicedPacket::from_ethernet(&frame).is_ok());
    }
}
