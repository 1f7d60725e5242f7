//! Addresses that stand for many people: a translator or a tunnel writes them, or a provider shares
//! them out.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::selector::Selector;

/// Prefixes of IPv6 in which IPv4 addresses are written (RFC 6052, RFC 8215), as whole sources.
const NAT64: [Ipv6Net; 2] = [
    Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 64),
    Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48),
];

/// RFC 4380: the prefix, and the IPv4 address of a server, which ends with the /64.
const TEREDO: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32);

/// RFC 3056: the prefix, and the IPv4 address of a router, which ends with the /48.
const SIX_TO_FOUR: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16);

/// RFC 6598.
const SHARED: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(100, 64, 0, 0), 10);

/// Why sources are many people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Crowd {
    /// A NAT64 writes IPv4 addresses in this prefix.
    Nat64(Ipv6Net),
    /// Clients of a Teredo server, or of all.
    Teredo(Option<Ipv4Addr>),
    /// Clients of a 6to4 router, or of all.
    SixToFour(Option<Ipv4Addr>),
    /// Shared address space of providers.
    Shared,
}

impl Crowd {
    /// The crowd that all sources of a selector belong to, if there is one.
    pub fn of(selector: &Selector) -> Option<Self> {
        let net = match selector {
            Selector::Every => return None,
            Selector::Prefix(IpNet::V4(net)) => {
                return SHARED.contains(net).then_some(Self::Shared);
            }
            Selector::Prefix(IpNet::V6(net)) => net,
        };
        if let Some(of) = NAT64.into_iter().find(|of| of.contains(net)) {
            return Some(Self::Nat64(of));
        }
        // The IPv4 address that begins at a bit.
        let within = |from: u32| {
            let bits = net.addr().to_bits() >> (96 - from);
            Ipv4Addr::from_bits(u32::try_from(bits & 0xffff_ffff).unwrap_or_default())
        };
        let known = |bits: u8, from| (net.prefix_len() >= bits).then(|| within(from));
        if TEREDO.contains(net) {
            return Some(Self::Teredo(known(64, 32)));
        }
        SIX_TO_FOUR.contains(net).then(|| Self::SixToFour(known(48, 16)))
    }

    /// True if one /64 is the addresses of many hosts, which only a longer mask distinguishes.
    pub const fn is_in_one_source(self) -> bool {
        matches!(self, Self::Nat64(_) | Self::Teredo(_))
    }
}

/// The reason, as a sentence.
impl fmt::Display for Crowd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nat64(of) => write!(f, "as {of} a NAT64 writes IPv4 addresses"),
            Self::Teredo(Some(server)) => {
                write!(f, "all clients of the Teredo server {server} have addresses there")
            }
            Self::Teredo(None) => f.write_str("all clients of Teredo servers have addresses there"),
            Self::SixToFour(Some(router)) => {
                write!(f, "6to4 gives those behind the IPv4 address {router} addresses there")
            }
            Self::SixToFour(None) => {
                f.write_str("6to4 gives those behind an IPv4 address addresses there")
            }
            Self::Shared => write!(f, "providers share the addresses of {SHARED} among customers"),
        }
    }
}

/// The warning that a denial or a ban is one of many people.
pub fn crowd_hit(selector: &Selector) -> Option<String> {
    let crowd = Crowd::of(selector)?;
    Some(format!("{selector} is denied with everybody behind it: {crowd}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source_text;

    #[test]
    fn addresses_of_translators_tunnels_and_providers_are_crowds() {
        let server = Some(Ipv4Addr::new(192, 0, 2, 4));
        for (text, crowd) in [
            ("64:ff9b::808:808", Some(Crowd::Nat64(NAT64[0]))),
            ("64:ff9b::/64", Some(Crowd::Nat64(NAT64[0]))),
            ("64:ff9b:1:7::1", Some(Crowd::Nat64(NAT64[1]))),
            ("64:ff9b:1::/48", Some(Crowd::Nat64(NAT64[1]))),
            ("64:ff9b::/48", None),
            ("64:ff9b:2::1", None),
            ("2001:0:c000:204:8000:63bf:3fff:fdd2", Some(Crowd::Teredo(server))),
            ("2001::/32", Some(Crowd::Teredo(None))),
            ("2001:0:c000::/48", Some(Crowd::Teredo(None))),
            ("2001:1::1", None),
            ("2001:db8::1", None),
            ("2002:c000:204::1", Some(Crowd::SixToFour(server))),
            ("2002:c000:204::/48", Some(Crowd::SixToFour(server))),
            ("2002:c000::/32", Some(Crowd::SixToFour(None))),
            ("2002::/16", Some(Crowd::SixToFour(None))),
            ("2003::1", None),
            ("100.64.0.0/10", Some(Crowd::Shared)),
            ("100.127.255.255", Some(Crowd::Shared)),
            ("::ffff:100.64.0.1", Some(Crowd::Shared)),
            ("100.63.255.255", None),
            ("100.128.0.0", None),
            // Wider ones are of many people anyway, and an IPv4-mapped address is the IPv4 address.
            ("100.0.0.0/8", None),
            ("::ffff:192.0.2.7", None),
            ("192.0.2.7", None),
        ] {
            assert_eq!(Crowd::of(&source_text::parse(text).unwrap()), crowd, "{text}");
        }
        assert_eq!(Crowd::of(&Selector::Every), None);
    }
}
