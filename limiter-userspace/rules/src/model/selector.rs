//! Selectors: the sources that a rule, a list entry or a question is for.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};
use limiter_common::source::{MAPPED_BITS, V6_BITS};

/// A set of sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Selector {
    /// `remote_address` without a value: every source of both families.
    Every,
    /// The sources inside a prefix; IPv6 at most /64, no host bits.
    Prefix(IpNet),
}

/// Why a prefix selects nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// Bits are set past the prefix length.
    #[error("{0} has host bits set: write {net}", net = .0.trunc())]
    HostBits(IpNet),
    /// Sources are /64s.
    #[error("{0} is longer than /64, and an IPv6 source is a /64: write {1}")]
    TooLong(Ipv6Net, Ipv6Net),
    /// An IPv4 address written as IPv6.
    #[error("{0} is an IPv4-mapped address, which no packet carries: write the IPv4 address")]
    Mapped(Ipv6Net),
}

impl Selector {
    /// Checks a prefix.
    pub fn prefix(net: IpNet) -> Result<Self, SelectorError> {
        if net.trunc() != net {
            return Err(SelectorError::HostBits(net));
        }
        if let IpNet::V6(v6) = net {
            if v6.addr().to_ipv4_mapped().is_some() && u32::from(v6.prefix_len()) >= MAPPED_BITS {
                return Err(SelectorError::Mapped(v6));
            }
            if u32::from(v6.prefix_len()) > V6_BITS {
                return Err(SelectorError::TooLong(v6, source_net(v6.addr())));
            }
        }
        Ok(Self::Prefix(net))
    }

    /// The selector of one address: a /32, or the /64 around an IPv6 address. An IPv4-mapped
    /// address counts as IPv4.
    pub fn address(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self::Prefix(IpNet::from(IpAddr::V4(v4))),
            IpAddr::V6(v6) => Self::Prefix(IpNet::V6(source_net(v6))),
        }
    }

    /// The prefixes in the program's trie (length, IPv4-mapped for IPv4).
    pub fn trie_prefixes(&self) -> Vec<TriePrefix> {
        match self {
            Self::Every => vec![
                TriePrefix { length: 0, address: [0; 16] },
                TriePrefix { length: MAPPED_BITS, address: mapped([0; 4]) },
            ],
            Self::Prefix(IpNet::V4(net)) => vec![TriePrefix {
                length: MAPPED_BITS + u32::from(net.prefix_len()),
                address: mapped(net.addr().octets()),
            }],
            Self::Prefix(IpNet::V6(net)) => vec![TriePrefix {
                length: u32::from(net.prefix_len()),
                address: net.addr().octets(),
            }],
        }
    }

    /// True for one source: an IPv4 address, or an IPv6 /64.
    pub fn is_source(&self) -> bool {
        match self {
            Self::Every => false,
            Self::Prefix(IpNet::V4(net)) => net.prefix_len() == 32,
            Self::Prefix(IpNet::V6(net)) => u32::from(net.prefix_len()) == V6_BITS,
        }
    }

    /// Significant bits of the prefix; `None` for every source.
    pub fn prefix_len(&self) -> Option<u8> {
        match self {
            Self::Every => None,
            Self::Prefix(net) => Some(net.prefix_len()),
        }
    }

    /// The selectors around it, the longest first.
    pub fn wider(&self) -> impl Iterator<Item = Self> + use<> {
        let (net, every) = match self {
            Self::Every => (None, None),
            Self::Prefix(net) => (net.supernet(), Some(Self::Every)),
        };
        std::iter::successors(net, IpNet::supernet).map(Self::Prefix).chain(every)
    }

    /// True if every source of `other` is one of `self`.
    pub fn contains(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Every, _) => true,
            (Self::Prefix(_), Self::Every) => false,
            (Self::Prefix(outer), Self::Prefix(inner)) => outer.contains(inner),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every => f.write_str("every source"),
            // A whole IPv4 address reads better without its length.
            Self::Prefix(IpNet::V4(net)) if net.prefix_len() == 32 => net.addr().fmt(f),
            Self::Prefix(net) => net.fmt(f),
        }
    }
}

/// A key of the program's rule trie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TriePrefix {
    /// Significant bits, at most 128.
    pub length: u32,
    /// Network order.
    pub address: [u8; 16],
}

impl TriePrefix {
    /// The prefix of one source, by its key in the trie: all of an IPv4 address, 64 bits of IPv6.
    pub fn of_source(address: [u8; 16]) -> Self {
        let mapped = Ipv6Addr::from(address).to_ipv4_mapped().is_some();
        Self { length: if mapped { 128 } else { V6_BITS }, address }
    }

    /// True if this prefix has every source of `other`.
    pub fn contains(&self, other: &Self) -> bool {
        let shift = 128u32.saturating_sub(self.length);
        let cut = |prefix: &Self| {
            u128::from_be_bytes(prefix.address).checked_shr(shift).unwrap_or_default()
        };
        self.length <= other.length && cut(self) == cut(other)
    }

    /// The first `length` bits of it, or all that it has.
    #[must_use]
    pub fn shortened(&self, length: u32) -> Self {
        let length = length.min(self.length);
        let mask = u128::MAX.checked_shl(128u32.saturating_sub(length)).unwrap_or(0);
        let address = (u128::from_be_bytes(self.address) & mask).to_be_bytes();
        Self { length, address }
    }

    /// The selector that has this prefix; [`Selector::Every`] has two, and this names neither.
    pub fn selector(&self) -> Option<Selector> {
        let v6 = Ipv6Addr::from(self.address);
        let net = match v6.to_ipv4_mapped() {
            Some(v4) if self.length >= MAPPED_BITS => {
                let length = u8::try_from(self.length - MAPPED_BITS).ok()?;
                IpNet::new(IpAddr::V4(v4), length).ok()?
            }
            _ => IpNet::new(IpAddr::V6(v6), u8::try_from(self.length).ok()?).ok()?,
        };
        Some(Selector::Prefix(net))
    }
}

fn mapped([a, b, c, d]: [u8; 4]) -> [u8; 16] {
    limiter_common::source::Source::V4([a, b, c, d]).trie_key()
}

fn source_net(address: Ipv6Addr) -> Ipv6Net {
    // 64 is a valid length, so `new_assert` cannot fail.
    Ipv6Net::new_assert(address, 64).trunc()
}
