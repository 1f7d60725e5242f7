//! The IP header and everything that belongs to it.

use super::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, checksum};

const TTL: u8 = 64;
const FRAGMENT_HEADER: u8 = 44;

/// Place of a piece in a larger packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fragment {
    /// Identification, the same in all pieces; IPv4 keeps the low 16 bits.
    pub id: u32,
    /// Position in units of eight bytes, under 8192.
    pub offset: u16,
    /// True if more pieces follow.
    pub more: bool,
}

/// An IPv6 extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// Hop-by-hop options (0), all padding, of 8 * (`n` + 1) bytes.
    HopByHop(u8),
    /// A routing header (43) with no segments left, of 8 * (`n` + 1) bytes.
    Routing(u8),
    /// Destination options (60), all padding, of 8 * (`n` + 1) bytes.
    Destination(u8),
    /// An authentication header (51) of 4 * (`n` + 2) bytes; `n` is odd and at least 1.
    Authentication(u8),
    /// A fragment header (44), of 8 bytes.
    Fragment(Fragment),
}

impl Extension {
    fn number(self) -> u8 {
        match self {
            Self::HopByHop(_) => 0,
            Self::Routing(_) => 43,
            Self::Destination(_) => 60,
            Self::Authentication(_) => 51,
            Self::Fragment(_) => FRAGMENT_HEADER,
        }
    }

    fn write(self, out: &mut Vec<u8>, next: u8) {
        match self {
            Self::HopByHop(units) | Self::Destination(units) => {
                out.extend([next, units]);
                let mut padding = 6 + 8 * usize::from(units);
                while padding >= 2 {
                    // PadN carries at most 255 bytes; one byte must never be left over for it.
                    let body = (padding - 2).min(252);
                    out.extend([1, u8::try_from(body).unwrap_or(0)]);
                    out.resize(out.len() + body, 0);
                    padding -= body + 2;
                }
            }
            Self::Routing(units) => {
                out.extend([next, units]);
                out.resize(out.len() + 6 + 8 * usize::from(units), 0);
            }
            Self::Authentication(units) => {
                out.extend([next, units]);
                out.resize(out.len() + 4 * (usize::from(units) + 2) - 2, 0);
            }
            Self::Fragment(Fragment { id, offset, more }) => {
                out.extend([next, 0]);
                out.extend((offset << 3 | u16::from(more)).to_be_bytes());
                out.extend(id.to_be_bytes());
            }
        }
    }
}

/// The network layer of a frame in the making.
#[derive(Clone, Debug)]
pub(super) enum Network {
    V4 { source: [u8; 4], destination: [u8; 4], options: Vec<u8>, fragment: Fragment },
    V6 { source: [u8; 16], destination: [u8; 16], extensions: Vec<Extension> },
}

impl Network {
    pub(super) fn ipv4(source: [u8; 4], destination: [u8; 4]) -> Self {
        Self::V4 { source, destination, options: Vec::new(), fragment: Fragment::default() }
    }

    pub(super) fn ipv6(source: [u8; 16], destination: [u8; 16]) -> Self {
        Self::V6 { source, destination, extensions: Vec::new() }
    }

    pub(super) fn is_ipv6(&self) -> bool {
        matches!(self, Self::V6 { .. })
    }

    pub(super) fn ethertype(&self) -> u16 {
        if self.is_ipv6() { ETHERTYPE_IPV6 } else { ETHERTYPE_IPV4 }
    }

    #[expect(clippy::panic, reason = "a test that asks for this is wrong")]
    pub(super) fn set_options(&mut self, new: &[u8]) {
        assert!(new.len() <= 40, "IPv4 has room for 40 bytes of options, not {}", new.len());
        match self {
            Self::V4 { options, .. } => {
                new.clone_into(options);
                options.resize(new.len().next_multiple_of(4), 0);
            }
            Self::V6 { .. } => panic!("IPv6 has extension headers, not options"),
        }
    }

    #[expect(clippy::panic, reason = "a test that asks for this is wrong")]
    pub(super) fn add_extension(&mut self, extension: Extension) {
        match self {
            Self::V4 { .. } => panic!("IPv4 has options, not extension headers"),
            Self::V6 { extensions, .. } => extensions.push(extension),
        }
    }

    pub(super) fn set_fragment(&mut self, new: Fragment) {
        match self {
            Self::V4 { fragment, .. } => *fragment = new,
            Self::V6 { extensions, .. } => extensions.push(Extension::Fragment(new)),
        }
    }

    pub(super) fn is_later_fragment(&self) -> bool {
        match self {
            Self::V4 { fragment, .. } => fragment.offset > 0,
            Self::V6 { extensions, .. } => extensions.iter().any(|extension| {
                matches!(extension, Extension::Fragment(fragment) if fragment.offset > 0)
            }),
        }
    }

    /// Part of this layer that the checksum of a transport protocol covers.
    pub(super) fn pseudo_header(&self, protocol: u8, length: usize) -> Vec<u8> {
        let length = u32::try_from(length).unwrap_or(0).to_be_bytes();
        let mut out = Vec::with_capacity(40);
        match self {
            Self::V4 { source, destination, .. } => {
                out.extend(source);
                out.extend(destination);
                out.extend([0, protocol, length[2], length[3]]);
            }
            Self::V6 { source, destination, .. } => {
                out.extend(source);
                out.extend(destination);
                out.extend(length);
                out.extend([0, 0, 0, protocol]);
            }
        }
        out
    }

    /// Appends the header and the segment.
    pub(super) fn write(&self, out: &mut Vec<u8>, protocol: u8, segment: &[u8]) {
        match self {
            Self::V4 { source, destination, options, fragment } => {
                let words = u8::try_from(5 + options.len() / 4).unwrap_or(15);
                let total = u16::try_from(20 + options.len() + segment.len()).unwrap_or(u16::MAX);
                let mut header = vec![4 << 4 | words, 0];
                header.extend(total.to_be_bytes());
                header.extend(&fragment.id.to_be_bytes()[2..]);
                header.extend(
                    (u16::from(fragment.more) << 13 | fragment.offset & 0x1fff).to_be_bytes(),
                );
                header.extend([TTL, protocol, 0, 0]);
                header.extend(source);
                header.extend(destination);
                header.extend(options);
                let sum = checksum::internet([&header, &[]]);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
                out.extend(header);
            }
            Self::V6 { source, destination, extensions } => {
                let mut chain = Vec::new();
                let mut numbers = extensions.iter().map(|extension| extension.number()).skip(1);
                for extension in extensions {
                    extension.write(&mut chain, numbers.next().unwrap_or(protocol));
                }
                let length = u16::try_from(chain.len() + segment.len()).unwrap_or(0);
                out.extend([6 << 4, 0, 0, 0]);
                out.extend(length.to_be_bytes());
                out.extend([extensions.first().map_or(protocol, |first| first.number()), TTL]);
                out.extend(source);
                out.extend(destination);
                out.extend(chain);
            }
        }
        out.extend(segment);
    }
}
