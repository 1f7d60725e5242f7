//! The headers between the fixed IP header and what the packet carries.

use limiter_common::header::{Fragment, Reach, Version};

use super::extension::Extension;
use super::ip::Header;
use super::{Bytes, MAX_EXTENSIONS, MAX_TRANSPORT_OFFSET, protocol};
use crate::rounds::Rounds;

const MORE_FRAGMENTS: u16 = 0x0001;
const FRAGMENT_OFFSET: u16 = 0xfff8;

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
