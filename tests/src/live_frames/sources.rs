//! Source addresses of a load, by number.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Odd, so that numbers that differ give addresses that differ; neighbours come far apart.
pub(super) const SPREAD: u32 = 0x9e37_79b1;

/// 16.0.0.0/4: unicast, and nothing of a testbed is in it.
const BLOCK_V4: u32 = 0x1000_0000;

/// Order of the sources of a load's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sources {
    /// One source sends everything.
    One,
    /// Every packet is from one of so many, each as likely as any other.
    Uniform(u32),
    /// A few send most: the sources have ranks from 1 on, and one of rank r sends about 1/r of what
    /// the first one does. In steps: each octave of ranks (1, 2 and 3, 4 to 7, ...) sends as much
    /// as any other, and so does each source in it. So many octaves, at most 28; the source of rank
    /// r has the number r - 1.
    Zipf(u32),
    /// Every packet is from a source that sent none before; the first has this number.
    New(u32),
    /// As [`Sources::New`], but `block` sources send in turn, until each has sent `times`; then
    /// come others.
    Again {
        /// Number of the first source.
        first: u32,
        /// Sources that send in turn, at least 1.
        block: u32,
        /// Packets of each, at least 1.
        times: u32,
    },
}

/// Version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Sources in 16.0.0.0/4.
    V4,
    /// Sources in `2001:db8::/32`, each in a /64 of its own.
    V6,
}

impl Family {
    /// How many sources there are.
    pub const fn sources(self) -> u64 {
        self.mask() as u64 + 1
    }

    /// The bits of the changing word that a source's number fills.
    pub(super) const fn mask(self) -> u32 {
        match self {
            Self::V4 => BLOCK_V4 - 1,
            Self::V6 => u32::MAX,
        }
    }

    /// The bits of that word that stay.
    pub(super) const fn base(self) -> u32 {
        match self {
            Self::V4 => BLOCK_V4,
            Self::V6 => 0,
        }
    }

    /// The source with a number. Numbers from [`Family::sources`] on repeat the ones before.
    pub const fn source(self, number: u32) -> IpAddr {
        let word = (number.wrapping_mul(SPREAD) & self.mask()) | self.base();
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::from_bits(word)),
            Self::V6 => {
                IpAddr::V6(Ipv6Addr::from_bits((0x2001_0db8 << 96) | ((word as u128) << 64) | 1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn numbers_that_differ_give_sources_that_differ() {
        for family in [Family::V4, Family::V6] {
            let sources: HashSet<IpAddr> = (0..100_000).map(|n| family.source(n)).collect();
            assert_eq!(sources.len(), 100_000);
        }
        let Ok(all) = u32::try_from(Family::V4.sources()) else { panic!("V4 has 2^28") };
        assert_eq!(Family::V4.source(all), Family::V4.source(0), "and then it repeats");
        assert_ne!(Family::V4.source(all - 1), Family::V4.source(0));
    }

    #[test]
    fn sources_stay_in_their_block() {
        for number in (0..1 << 20).map(|n| n * 4093) {
            let IpAddr::V4(address) = Family::V4.source(number) else { panic!("not IPv4") };
            assert_eq!(address.octets()[0] >> 4, 1, "{address}");
            let IpAddr::V6(address) = Family::V6.source(number) else { panic!("not IPv6") };
            assert_eq!(address.segments()[..2], [0x2001, 0xdb8], "{address}");
        }
    }
}
