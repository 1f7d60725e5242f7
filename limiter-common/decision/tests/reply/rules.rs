//! The rules over any frame, against the standard library's idea of addresses and etherparse's of
//! everything else; and what follows for two limiters that meet.

use core::net::{Ipv4Addr, Ipv6Addr};

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::answer::{answer, lengths};
use crate::cause::{from, icmp, protocol, repaired, tcp, to, udp, v4, v6};
use crate::eligible;

/// True if etherparse and the standard library see a reason against an answer.
fn forbidden(frame: &[u8]) -> bool {
    let packet = SlicedPacket::from_ethernet(frame).unwrap();
    let between_hosts = match packet.net.as_ref().unwrap() {
        NetSlice::Ipv4(ip) => {
            let header = ip.header();
            let hosts = [header.source_addr(), header.destination_addr()].map(is_v4_host);
            header.options().is_empty()
                && !ip.is_payload_fragmented()
                && hosts == [true; 2]
                && header.source() != header.destination()
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header();
            let hosts = [header.source_addr(), header.destination_addr()].map(is_v6_host);
            hosts == [true; 2] && header.source() != header.destination()
        }
        NetSlice::Arp(_) => false,
    };
    let carried = match packet.transport {
        Some(TransportSlice::Tcp(tcp)) => !tcp.rst(),
        Some(TransportSlice::Icmpv4(icmp)) => icmp.type_u8() == 8,
        Some(TransportSlice::Icmpv6(icmp)) => icmp.type_u8() == 128,
        _ => true,
    };
    let link = [frame[0], frame[6]].iter().any(|first| first & 1 != 0);
    link || !between_hosts || !carried
}

fn is_v4_host(address: Ipv4Addr) -> bool {
    let reserved = Ipv4Addr::new(240, 0, 0, 0);
    !(address.octets()[0] == 0
        || address.is_loopback()
        || address.is_multicast()
        || address.is_broadcast()
        || address >= reserved)
}

fn is_v6_host(address: Ipv6Addr) -> bool {
    !(address.is_unspecified()
        || address.is_loopback()
        || address.is_multicast()
        || address.to_ipv4_mapped().is_some())
}

/// First bytes of addresses on both sides of every border.
const FIRST: [u8; 12] = [0, 1, 2, 10, 126, 127, 128, 223, 224, 239, 240, 255];

fn frames() -> impl Strategy<Value = Vec<u8>> {
    let v4_address =
        || (select(FIRST.to_vec()), any::<[u8; 3]>()).prop_map(|(a, [b, c, d])| [a, b, c, d]);
    let v6_address = || {
        (select(FIRST.to_vec()), prop_oneof![Just([0; 15]), any::<[u8; 15]>()]).prop_map(
            |(first, rest)| {
                let mut address = [first; 16];
                address[1..].copy_from_slice(&rest);
                address
            },
        )
    };
    let kind = || prop_oneof![Just(8), Just(128), any::<u8>()];
    let link = (select(vec![0usize, 6]), prop_oneof![9 => Just(2u8), 1 => any::<u8>()]);
    let v4 = (v4_address(), v4_address(), any::<u8>(), kind(), 0..4).prop_map(
        |(source, destination, flags, kind, carried)| {
            let frame = match carried {
                0 => udp(v4()),
                1 => tcp(v4(), flags),
                2 => icmp(v4(), kind),
                _ => protocol(v4(), 47),
            };
            from(to(frame, &destination), &source)
        },
    );
    let v6 = (v6_address(), v6_address(), any::<u8>(), kind(), 0..4).prop_map(
        |(source, destination, flags, kind, carried)| {
            let frame = match carried {
                0 => udp(v6()),
                1 => tcp(v6(), flags),
                2 => icmp(v6(), kind),
                _ => protocol(v6(), 47),
            };
            from(to(frame, &destination), &source)
        },
    );
    (prop_oneof![v4, v6], link).prop_map(|(mut frame, (at, first))| {
        frame[at] = first;
        repaired(frame)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn the_oracle_agrees(frame in frames()) {
        prop_assert_eq!(eligible(&frame).is_none(), forbidden(&frame), "{:02x?}", frame);
    }

    /// Whatever is answered: the answer is valid, goes the other way, is not longer, and is not
    /// answered itself.
    #[test]
    fn answers_end_there(mut frame in frames(), damage in prop::option::of((any::<Index>(), any::<u8>()))) {
        if let Some((at, value)) = damage {
            *at.get_mut(&mut frame[14..]) = value;
        }
        let Some((kind, answer)) = answer(&frame) else {
            return Ok(());
        };
        let (packet, received) = lengths(&frame).unwrap();
        prop_assert!(answer.len() <= frame.len());
        prop_assert!(answer.len() - 14 <= packet && packet <= received);
        prop_assert_eq!(answer.len() - 14, usize::try_from(kind.length()).unwrap());
        prop_assert_eq!(&answer[..6], &frame[6..12]);
        prop_assert_eq!(&answer[6..12], &frame[..6]);
        prop_assert_eq!(&answer[12..14], &frame[12..14]);
        prop_assert!(SlicedPacket::from_ethernet(&answer).is_ok());
        prop_assert_eq!(eligible(&answer), None);
    }
}
