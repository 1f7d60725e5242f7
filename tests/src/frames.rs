//! Every kind of frame, and what becomes of it: the rows of the first two tables of
//! docs/packets.md.

use std::net::{Ipv4Addr, Ipv6Addr};

use limiter_common::source::Source;
use limiter_common::verdict::Reason;

use crate::packet::{Extension, Fragment, Frame, TAG_SERVICE, Transport};

/// The IPv4 source of all of them.
pub const V4: [u8; 4] = [192, 0, 2, 1];
/// Destination of the IPv4 frames.
pub const V4_TO: [u8; 4] = [192, 0, 2, 254];
/// The IPv6 source of all of them.
pub const V6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 5];
/// Destination of the IPv6 frames.
pub const V6_TO: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
/// The first 64 bits of [`V6`], whose bucket is charged.
pub const V6_NET: [u8; 8] = [0x20, 1, 0xd, 0xb8, 0, 1, 0, 2];

/// A kind of frame.
#[derive(Clone, Debug)]
pub struct Row {
    /// The section of the page: `IPv4` or `IPv6`.
    pub section: &'static str,
    /// Name of the kind on the page.
    pub what: &'static str,
    /// Frame of the kind.
    pub frame: Vec<u8>,
    /// The source that is charged, or why it is exempt.
    pub expected: Result<Source, Reason>,
}

/// All rows, in the order of the page.
pub fn table() -> Vec<Row> {
    let rows = |section, rows: Vec<Kind>| {
        rows.into_iter().map(move |(what, frame, expected)| Row { section, what, frame, expected })
    };
    rows("IPv4", ipv4_table()).chain(rows("IPv6", ipv6_table())).collect()
}

/// An IPv4 frame, to build on.
pub fn v4() -> Frame {
    Frame::ipv4(V4, V4_TO)
}

/// An IPv6 frame, to build on.
pub fn v6() -> Frame {
    Frame::ipv6(V6, V6_TO)
}

/// A row without its section.
type Kind = (&'static str, Vec<u8>, Result<Source, Reason>);

fn discovery(hop_limit: u8, kind: u8) -> Vec<u8> {
    let icmp = Transport::Icmp { kind, code: 0 };
    patch(v6().transport(icmp).payload(&[0; 20]).build(), 14 + 7, hop_limit)
}

fn patch(mut frame: Vec<u8>, at: usize, value: u8) -> Vec<u8> {
    frame[at] = value;
    frame
}

fn cut(frame: &Frame, length: usize) -> Vec<u8> {
    frame.build()[..length].to_vec()
}

fn from_v4(source: [u8; 4]) -> Vec<u8> {
    Frame::ipv4(source, V4_TO).build()
}

fn from_v6(source: Ipv6Addr) -> Vec<u8> {
    Frame::ipv6(source.octets(), V6_TO).build()
}

/// An IPv4 packet under another Ethernet type, behind what stands between them there.
fn inside(ethertype: [u8; 2], between: &[u8]) -> Vec<u8> {
    let frame = v4().build();
    [&frame[..12], &ethertype, between, &frame[14..]].concat()
}

const VXLAN: Transport = Transport::Udp { source: 40_000, destination: 4_789 };

fn ipv4_table() -> Vec<Kind> {
    let source = Ok(Source::V4(V4));
    let first = Fragment { offset: 0, more: true, id: 7 };
    let later = Fragment { offset: 185, more: false, id: 7 };
    // Inside is another source, which nobody looks at.
    let inner = Frame::ipv4([198, 51, 100, 9], V4_TO).build()[14..].to_vec();
    let inner_v6 = v6().build()[14..].to_vec();
    let gre = [&[0, 0, 8, 0], &inner[..]].concat();
    let vxlan = [&[8, 0, 0, 0, 0, 0, 7, 0], &Frame::ipv4([198, 51, 100, 9], V4_TO).build()[..]];
    let vxlan = vxlan.concat();
    let syn = Transport::Tcp { source: 40_000, destination: 80, flags: 2 };
    vec![
        ("UDP", v4().build(), source),
        ("TCP SYN", v4().transport(syn).build(), source),
        ("ICMP echo", v4().transport(Transport::Echo { id: 1, sequence: 1 }).build(), source),
        ("options", v4().options(&[7, 7, 4, 0, 0, 0, 0, 0]).build(), source),
        ("40 bytes of options", v4().options(&[1; 40]).build(), source),
        ("first fragment", v4().fragment(first).payload(&[0; 64]).build(), source),
        ("later fragment", v4().fragment(later).payload(&[0; 64]).build(), source),
        ("header length under 5", patch(v4().build(), 14, 0x44), source),
        ("header length past the frame", patch(v4().build(), 14, 0x4f), source),
        ("total length past the frame", patch(v4().build(), 16, 0xff), source),
        ("unknown protocol", v4().transport(Transport::Raw(253)).build(), source),
        ("one tag", v4().vlan(100).build(), source),
        ("priority tag", v4().vlan(0).build(), source),
        ("QinQ", v4().tag(TAG_SERVICE, 7).vlan(100).build(), source),
        ("QinQ before 802.1ad", v4().tag(0x9100, 7).vlan(100).build(), source),
        ("three tags", v4().vlan(1).vlan(2).vlan(3).build(), Err(Reason::DeepVlan)),
        ("version 6 under the IPv4 type", patch(v4().build(), 14, 0x65), Err(Reason::Malformed)),
        ("cut after 1 byte", cut(&v4(), 15), Err(Reason::Truncated)),
        ("cut after 19 bytes", cut(&v4(), 33), Err(Reason::Truncated)),
        ("header and nothing more", cut(&v4(), 34), source),
        ("tag and nothing more", cut(&v4().vlan(1), 16), Err(Reason::Truncated)),
        ("Ethernet header only", cut(&v4(), 14), Err(Reason::Truncated)),
        ("ARP", patch(v4().build(), 13, 0x06), Err(Reason::NotIp)),
        ("LLDP", patch(patch(v4().build(), 12, 0x88), 13, 0xcc), Err(Reason::NotIp)),
        (
            "length instead of a type (STP)",
            patch(patch(v4().build(), 12, 0), 13, 38),
            Err(Reason::NotIp),
        ),
        (
            "IPv4 in a PPPoE session",
            inside([0x88, 0x64], &[0x11, 0, 0, 7, 0, 30, 0, 0x21]),
            Err(Reason::NotIp),
        ),
        ("IPv4 under an MPLS label", inside([0x88, 0x47], &[0, 1, 1, 64]), Err(Reason::NotIp)),
        ("IPv4 in MACsec", inside([0x88, 0xe5], &[0, 28, 0, 0, 0, 1, 8, 0]), Err(Reason::NotIp)),
        ("source 0.0.0.0", from_v4([0; 4]), Ok(Source::V4([0; 4]))),
        ("loopback source", from_v4([127, 0, 0, 1]), Ok(Source::V4([127, 0, 0, 1]))),
        ("multicast source", from_v4([224, 0, 0, 251]), Ok(Source::V4([224, 0, 0, 251]))),
        ("broadcast source", from_v4([255; 4]), Ok(Source::V4([255; 4]))),
        ("the destination as source", from_v4(V4_TO), Ok(Source::V4(V4_TO))),
        ("GRE", v4().transport(Transport::Raw(47)).payload(&gre).build(), source),
        ("IPv4 in IPv4", v4().transport(Transport::Raw(4)).payload(&inner).build(), source),
        ("IPv6 in IPv4", v4().transport(Transport::Raw(41)).payload(&inner_v6).build(), source),
        ("VXLAN", v4().transport(VXLAN).payload(&vxlan).build(), source),
        ("jumbo of 9000 bytes", v4().payload(&[0; 8972]).build(), source),
        ("multi-buffer of 60 kB", v4().payload(&[0; 60_000]).build(), source),
    ]
}

/// Payload length 0, and the length in a hop-by-hop option of type 194 (RFC 2675).
fn jumbogram() -> Vec<u8> {
    let mut frame = v6().extension(Extension::HopByHop(0)).payload(&[0; 64]).build();
    frame[18..20].fill(0);
    frame[56..62].copy_from_slice(&[194, 4, 0, 1, 0, 0]);
    frame
}

fn ipv6_table() -> Vec<Kind> {
    let source = Ok(Source::V6(V6_NET));
    let first = Fragment { offset: 0, more: true, id: 7 };
    let later = Fragment { offset: 185, more: false, id: 7 };
    let atomic = Fragment { offset: 0, more: false, id: 7 };
    let mapped = Ipv4Addr::from(V4).to_ipv6_mapped();
    let multicast = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let to = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0];
    let inner = from_v6(multicast)[14..].to_vec();
    let hop_by_hop = v6().extension(Extension::HopByHop(0)).build();
    let deep = (0..7).fold(v6(), |frame, _| frame.extension(Extension::Destination(0)));
    let chain = v6()
        .extension(Extension::HopByHop(0))
        .extension(Extension::Routing(2))
        .extension(Extension::Destination(1))
        .extension(Extension::Authentication(3));
    vec![
        ("UDP", v6().build(), source),
        ("two customer tags", v6().vlan(1).vlan(2).build(), source),
        ("hop-by-hop", hop_by_hop.clone(), source),
        ("four extensions", chain.build(), source),
        ("extension past the frame", patch(hop_by_hop.clone(), 55, 255), source),
        ("seven extensions", deep.build(), source),
        ("ESP", v6().transport(Transport::Raw(50)).payload(&[0; 32]).build(), source),
        ("first fragment", v6().fragment(first).payload(&[0; 64]).build(), source),
        ("later fragment", v6().fragment(later).payload(&[0; 64]).build(), source),
        ("atomic fragment", v6().fragment(atomic).payload(&[0; 64]).build(), source),
        ("unknown next header", v6().transport(Transport::Raw(253)).build(), source),
        ("payload length 0", patch(patch(v6().build(), 18, 0), 19, 0), source),
        ("jumbogram", jumbogram(), source),
        ("unspecified source", from_v6(Ipv6Addr::UNSPECIFIED), Ok(Source::V6([0; 8]))),
        ("loopback source", from_v6(Ipv6Addr::LOCALHOST), Ok(Source::V6([0; 8]))),
        ("IPv4-mapped source", from_v6(mapped), Ok(Source::V6([0; 8]))),
        ("multicast source", from_v6(multicast), Ok(Source::V6([0xff, 2, 0, 0, 0, 0, 0, 0]))),
        ("the destination as source", from_v6(V6_TO.into()), Ok(Source::V6(to))),
        ("IPv6 in IPv6", v6().transport(Transport::Raw(41)).payload(&inner).build(), source),
        ("neighbour solicitation", discovery(255, 135), Err(Reason::NeighbourDiscovery)),
        ("router advertisement", discovery(255, 134), Err(Reason::NeighbourDiscovery)),
        ("redirect", discovery(255, 137), Err(Reason::NeighbourDiscovery)),
        ("solicitation from afar", discovery(254, 135), source),
        ("echo with hop limit 255", discovery(255, 128), source),
        ("type 138 with hop limit 255", discovery(255, 138), source),
        ("version 4 under the IPv6 type", patch(v6().build(), 14, 0x45), Err(Reason::Malformed)),
        ("cut after 1 byte", cut(&v6(), 15), Err(Reason::Truncated)),
        ("cut after 39 bytes", cut(&v6(), 53), Err(Reason::Truncated)),
        ("header and nothing more", cut(&v6(), 54), source),
    ]
}
