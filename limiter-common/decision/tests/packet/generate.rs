//! Valid frames, built by etherparse.

use etherparse::{
    IpAuthHeader, IpFragOffset, IpHeaders, IpNumber, Ipv4Extensions, Ipv4Header, Ipv4Options,
    Ipv6Extensions, Ipv6FragmentHeader, Ipv6Header, Ipv6RawExtHeader, Ipv6RoutingExtensions,
    PacketBuilder, TcpHeader, VlanId,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// Protocols besides TCP, UDP and ICMP: with ports, without, and the two that end a chain.
const RAW: [u8; 9] = [132, 33, 136, 47, 50, 59, 4, 41, 253];

/// The payload of an IP packet.
#[derive(Clone, Debug)]
enum Carried {
    Tcp { source: u16, destination: u16, flags: u8 },
    Udp { source: u16, destination: u16 },
    Icmp { kind: u8, code: u8 },
    Raw(u8),
}

fn carried() -> impl Strategy<Value = Carried> {
    prop_oneof![
        any::<(u16, u16, u8)>().prop_map(|(source, destination, flags)| Carried::Tcp {
            source,
            destination,
            flags
        }),
        any::<(u16, u16)>().prop_map(|(source, destination)| Carried::Udp { source, destination }),
        any::<(u8, u8)>().prop_map(|(kind, code)| Carried::Icmp { kind, code }),
        prop::sample::select(RAW.to_vec()).prop_map(Carried::Raw),
    ]
}

/// Position in units of eight bytes and whether more follows; most packets are not fragments.
fn fragment() -> impl Strategy<Value = (u16, bool)> {
    prop_oneof![
        3 => Just((0, false)),
        1 => Just((0, true)),
        1 => (1..8191u16, any::<bool>()),
    ]
}

fn ipv4() -> impl Strategy<Value = IpHeaders> {
    let options = (0..=10usize).prop_flat_map(|words| vec(any::<u8>(), words * 4));
    (any::<([u8; 4], [u8; 4], u8)>(), options, fragment(), option::weighted(0.2, authentication()))
        .prop_map(|((source, destination, service), options, (offset, more), auth)| {
            let later = offset > 0;
            let header = Ipv4Header {
                dscp: (service >> 2).try_into().unwrap(),
                ecn: (service & 3).try_into().unwrap(),
                source,
                destination,
                fragment_offset: IpFragOffset::try_new(offset).unwrap(),
                more_fragments: more,
                time_to_live: 64,
                options: Ipv4Options::try_from(options.as_slice()).unwrap(),
                ..Ipv4Header::default()
            };
            // In a later fragment there is no such header: what follows is data.
            IpHeaders::Ipv4(header, Ipv4Extensions { auth: auth.filter(|_| !later) })
        })
}

fn authentication() -> impl Strategy<Value = IpAuthHeader> {
    // With an odd number of words, so that the header has a multiple of eight bytes.
    (0..5usize, any::<[u8; 36]>()).prop_map(|(pairs, value)| {
        IpAuthHeader::new(IpNumber::UDP, 1, 2, &value[..4 + 8 * pairs]).unwrap()
    })
}

fn raw_extension() -> impl Strategy<Value = Ipv6RawExtHeader> {
    (0..20usize)
        .prop_flat_map(|units| vec(any::<u8>(), 6 + 8 * units))
        .prop_map(|payload| Ipv6RawExtHeader::new_raw(IpNumber::UDP, &payload).unwrap())
}

fn extensions() -> impl Strategy<Value = Ipv6Extensions> {
    let sometimes = || option::weighted(0.3, raw_extension());
    let routing = option::weighted(0.3, (raw_extension(), sometimes()));
    let fragment = option::weighted(0.5, (fragment(), any::<u32>()));
    (sometimes(), sometimes(), routing, fragment, option::weighted(0.2, authentication())).prop_map(
        |(hop_by_hop_options, destination_options, routing, fragment, auth)| {
            let later = fragment.is_some_and(|((offset, _), _)| offset > 0);
            Ipv6Extensions {
                hop_by_hop_options,
                destination_options,
                routing: routing.map(|(routing, last)| Ipv6RoutingExtensions {
                    routing,
                    final_destination_options: last.filter(|_| !later),
                }),
                fragment: fragment.map(|((offset, more), id)| {
                    let offset = IpFragOffset::try_new(offset).unwrap();
                    Ipv6FragmentHeader::new(IpNumber::UDP, offset, more, id)
                }),
                // Behind the fragment header, as the one before.
                auth: auth.filter(|_| !later),
            }
        },
    )
}

fn ipv6() -> impl Strategy<Value = IpHeaders> {
    (any::<([u8; 16], [u8; 16], u8, u8)>(), extensions()).prop_map(
        |((source, destination, traffic_class, hop_limit), extensions)| {
            let header =
                Ipv6Header { traffic_class, source, destination, hop_limit, ..Default::default() };
            IpHeaders::Ipv6(header, extensions)
        },
    )
}

/// Whole, valid frames of every kind that etherparse builds.
pub(crate) fn frames() -> impl Strategy<Value = Vec<u8>> {
    let id = || (0..4096u16).prop_map(|id| VlanId::try_new(id).unwrap());
    let tags = prop_oneof![
        2 => Just(Vec::new()),
        1 => vec(id(), 1),
        1 => vec(id(), 2),
    ];
    (tags, prop_oneof![ipv4(), ipv6()], carried(), vec(any::<u8>(), 12..64)).prop_map(
        |(tags, ip, carried, payload)| {
            let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
            let is_v4 = matches!(ip, IpHeaders::Ipv4(..));
            let step = match tags[..] {
                [] => ethernet.ip(ip),
                [one] => ethernet.single_vlan(one).ip(ip),
                [outer, inner, ..] => ethernet.double_vlan(outer, inner).ip(ip),
            };
            let mut frame = Vec::new();
            match carried {
                Carried::Tcp { source, destination, flags } => {
                    let bit = |bit: u32| flags >> bit & 1 == 1;
                    let mut tcp = TcpHeader::new(source, destination, 1, 1);
                    (tcp.fin, tcp.syn, tcp.rst, tcp.psh) = (bit(0), bit(1), bit(2), bit(3));
                    (tcp.ack, tcp.urg, tcp.ece, tcp.cwr) = (bit(4), bit(5), bit(6), bit(7));
                    step.tcp_header(tcp).write(&mut frame, &payload).unwrap();
                }
                Carried::Udp { source, destination } => {
                    step.udp(source, destination).write(&mut frame, &payload).unwrap();
                }
                Carried::Icmp { kind, code } if is_v4 => {
                    // A timestamp message has one length (RFC 792), and etherparse takes no other.
                    let is_timestamp = matches!((kind, code), (13 | 14, 0));
                    let payload = if is_timestamp { &payload[..12] } else { &payload[..] };
                    step.icmpv4_raw(kind, code, [0; 4]).write(&mut frame, payload).unwrap();
                }
                Carried::Icmp { kind, code } => {
                    step.icmpv6_raw(kind, code, [0; 4]).write(&mut frame, &payload).unwrap();
                }
                Carried::Raw(number) => {
                    step.write(&mut frame, IpNumber(number), &payload).unwrap();
                }
            }
            frame
        },
    )
}
