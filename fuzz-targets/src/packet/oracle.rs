//! The facts by etherparse, of any frame. The two parsers share no code. etherparse refuses frames
//! whose length fields do not fit, which ours takes: then there is nothing to compare.

use etherparse::{
    IpNumber, Ipv6ExtensionSlice, LinkExtSlice, NetSlice, SlicedPacket, TransportSlice,
};
use limiter_common::header::{Fragment, Reach, Version};
use limiter_common::verdict::Reason;
use limiter_decision::packet::Facts;

/// Extension headers of IPv6 by number, of which etherparse walks some.
const EXTENSIONS: [u8; 8] = [0, 43, 44, 51, 60, 135, 139, 140];

/// Compares, where it has an opinion.
pub(super) fn compare(frame: &[u8], ours: Result<Facts, Reason>) {
    let Ok(packet) = SlicedPacket::from_ethernet(frame) else {
        return;
    };
    let only_tags = packet.link_exts.iter().all(|ext| matches!(ext, LinkExtSlice::Vlan(_)));
    if !only_tags {
        // MACsec: what is behind it is not looked at here.
        return;
    }
    let tags = packet.link_exts.len();
    let Some(net) = &packet.net else {
        return;
    };
    if tags > 2 {
        assert_eq!(ours, Err(Reason::DeepVlan), "etherparse sees {tags} tags");
        return;
    }
    let (said, payload) = match net {
        NetSlice::Arp(_) => {
            assert_eq!(ours, Err(Reason::NotIp), "etherparse sees ARP");
            return;
        }
        NetSlice::Ipv4(ip) => {
            let header = ip.header();
            let later = header.fragments_offset().value() > 0;
            let said = Said {
                version: Version::V4,
                source: mapped(header.source()),
                destination: mapped(header.destination()),
                dscp: header.dcp().value(),
                ecn: header.ecn().value(),
                length: header.total_len(),
                ttl: header.ttl(),
                fragment: fragment(later, header.more_fragments()),
            };
            (said, ip.payload())
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header();
            if ours == Err(Reason::NeighbourDiscovery) {
                assert_eq!((header.next_header().0, header.hop_limit()), (58, 255), "{header:?}");
                return;
            }
            let (mut later, mut more) = (false, false);
            for extension in ip.extensions().clone() {
                if let Ipv6ExtensionSlice::Fragment(fragment) = extension {
                    later |= fragment.fragment_offset().value() > 0;
                    more |= fragment.more_fragments();
                }
            }
            let said = Said {
                version: Version::V6,
                source: header.source(),
                destination: header.destination(),
                dscp: header.dscp().value(),
                ecn: header.ecn().value(),
                length: header.payload_length().saturating_add(40),
                ttl: header.hop_limit(),
                fragment: fragment(later, more),
            };
            (said, ip.payload())
        }
    };
    let facts = ours.expect("etherparse sees IP in a frame that is exempt here");
    let vlan = packet.vlan_ids().first().map(|id| id.value());
    assert_eq!(facts.vlan(), vlan, "{facts:?}");
    assert_eq!(facts.version(), said.version, "{facts:?}");
    assert_eq!(facts.source_address(), said.source, "{facts:?}");
    assert_eq!(facts.destination_address(), said.destination, "{facts:?}");
    assert_eq!((facts.dscp(), facts.ecn()), (said.dscp, said.ecn), "{facts:?}");
    assert_eq!((facts.packet_length(), facts.ttl()), (said.length, said.ttl), "{facts:?}");
    // Headers behind the point at which the chain was given up were not seen; behind a later
    // fragment's header there are only data, whatever etherparse reads in them.
    if facts.reach() != Reach::Transport {
        return;
    }
    // etherparse does not walk every extension of IPv6, hop-by-hop options in the first place only,
    // and one authentication header of IPv4.
    let stopped = match said.version {
        Version::V4 => payload.ip_number == IpNumber::AUTHENTICATION_HEADER,
        Version::V6 => EXTENSIONS.contains(&payload.ip_number.0),
    };
    if stopped {
        return;
    }
    assert_eq!(facts.fragment(), said.fragment, "{facts:?}");
    assert_eq!(facts.protocol(), Some(payload.ip_number.0), "{facts:?}");
    let at = payload.payload.as_ptr() as usize - frame.as_ptr() as usize;
    assert_eq!(facts.transport_offset().map(usize::from), Some(at), "{facts:?}");
    // etherparse reads no transport header of a first fragment.
    if let Some(transport) = &packet.transport {
        let said = match (said.version, transport) {
            (Version::V4, TransportSlice::Icmpv4(icmp)) => Some((icmp.type_u8(), icmp.code_u8())),
            (Version::V6, TransportSlice::Icmpv6(icmp)) => Some((icmp.type_u8(), icmp.code_u8())),
            _ => None,
        };
        assert_eq!(facts.icmp().map(|icmp| (icmp.kind, icmp.code)), said, "{facts:?}");
    }
}

/// Facts of the fixed header that both parsers have.
struct Said {
    version: Version,
    source: [u8; 16],
    destination: [u8; 16],
    dscp: u8,
    ecn: u8,
    /// Length of the IP packet, 65,535 for anything longer.
    length: u16,
    ttl: u8,
    fragment: Fragment,
}

const fn fragment(later: bool, more: bool) -> Fragment {
    match (later, more) {
        (true, _) => Fragment::Later,
        (false, true) => Fragment::First,
        (false, false) => Fragment::Whole,
    }
}

fn mapped(address: [u8; 4]) -> [u8; 16] {
    std::net::Ipv4Addr::from(address).to_ipv6_mapped().octets()
}
