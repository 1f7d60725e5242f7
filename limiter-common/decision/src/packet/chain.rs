//! The headers between the fixed IP header and what the packet carries.

use limiter_common::header::{Fragment, Reach, Version};

use super::facts::low_16;
use super::ip::Header;
use super::{Bytes, MAX_EXTENSIONS, MAX_TRANSPORT_OFFSET, protocol};
use crate::register::{Register, answer};
use crate::rounds::Rounds;

const MORE_FRAGMENTS: u16 = 0x0001;
const FRAGMENT_OFFSET: u16 = 0xfff8;

/// The end of the chain.
pub(super) struct End {
    pub(super) reach: Reach,
    /// The protocol behind the chain; meaningful if `known`.
    pub(super) protocol: u8,
    pub(super) known: bool,
    /// The offset of that protocol's header; meaningful with [`Reach::Transport`] only.
    pub(super) offset: usize,
    pub(super) fragment: Fragment,
}

/// Walks the extension headers of IPv6, and the authentication header of IPv4, the only one that
/// IPv4 has.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn walk(frame: &impl Bytes, header: &Header) -> End {
    let mut next = header.next;
    let mut fragment = header.fragment;
    let mut offset = header.end;
    let mut rounds = Rounds::new();
    let reach = 'walk: {
        if header.end == 0 {
            break 'walk Reach::Cut;
        }
        if matches!(fragment, Fragment::Later) {
            break 'walk Reach::LaterFragment;
        }
        while is_extension(header.version, next) {
            if !rounds.more(MAX_EXTENSIONS) {
                break 'walk Reach::TooDeep;
            }
            let Some(Extension { following, end, position }) = frame.extension(next, offset) else {
                break 'walk Reach::Cut;
            };
            offset = usize::from(end);
            if offset > MAX_TRANSPORT_OFFSET {
                break 'walk Reach::TooDeep;
            }
            if next == protocol::FRAGMENT {
                if position & FRAGMENT_OFFSET != 0 {
                    fragment = Fragment::Later;
                    next = following;
                    break 'walk Reach::LaterFragment;
                }
                if position & MORE_FRAGMENTS != 0 {
                    fragment = Fragment::First;
                }
            }
            next = following;
        }
        Reach::Transport
    };
    let known = !is_extension(header.version, next);
    End { reach, protocol: next, known, offset, fragment }
}

/// An extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension {
    /// The number of the header behind it.
    following: u8,
    /// The offset of that header: at most 1,036 bytes on.
    end: u16,
    /// Bytes 2 and 3: in a fragment header, its place and whether more follow.
    position: u16,
}

/// The register of an extension header that is not there.
const ABSENT: u64 = u64::MAX;

impl Register for Option<Extension> {
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn to_register(self) -> u64 {
        match self {
            Some(Extension { following, end, position }) => {
                u64::from(position) << 24 | u64::from(end) << 8 | u64::from(following)
            }
            None => ABSENT,
        }
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn of_register(register: u64) -> Self {
        if register == ABSENT {
            return None;
        }
        Some(Extension {
            following: (register & 0xff) as u8,
            end: (register >> 8 & 0xffff) as u16,
            position: (register >> 24 & 0xffff) as u16,
        })
    }
}

answer!(Option<Extension>, None);

/// Reads the extension header of a number at an offset, which is at most [`MAX_TRANSPORT_OFFSET`].
/// No extension header is shorter than eight bytes.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn extension(frame: &(impl Bytes + ?Sized), number: u8, offset: usize) -> Option<Extension> {
    let [following, units, high, low] = frame.read::<4>(offset)?;
    let end = low_16(offset + length(number, units));
    Some(Extension { following, end, position: u16::from_be_bytes([high, low]) })
}

/// The length of an extension header in bytes, from its length field.
#[cfg_attr(target_arch = "bpf", inline(always))]
const fn length(kind: u8, units: u8) -> usize {
    // Lossless; `usize::from` is not const.
    let units = units as usize;
    match kind {
        protocol::FRAGMENT => 8,
        protocol::AUTHENTICATION => (units + 2) * 4,
        _ => (units + 1) * 8,
    }
}

#[cfg_attr(target_arch = "bpf", inline(always))]
const fn is_extension(version: Version, number: u8) -> bool {
    match version {
        Version::V4 => number == protocol::AUTHENTICATION,
        Version::V6 => matches!(
            number,
            protocol::HOP_BY_HOP
                | protocol::ROUTING
                | protocol::FRAGMENT
                | protocol::AUTHENTICATION
                | protocol::DESTINATION_OPTIONS
                | protocol::MOBILITY
                | protocol::HIP
                | protocol::SHIM6
        ),
    }
}
