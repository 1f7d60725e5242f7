//! From the bytes of a frame to the source that it is charged to ([`parse`]), and to everything
//! else that rules and actions ask for ([`facts`]).
//!
//! The source stands in the fixed IP header, so it is found whatever follows: options, extension
//! headers, fragments and unknown protocols change nothing. Both functions agree on it, and on
//! which frames are exempt.
//!
//! The facts that are known, by what stands behind the fixed header:
//!
//! | behind the fixed header | [`Reach`] | protocol | ports, flags, ICMP type |
//! |---|---|---|---|
//! | TCP | `Transport` | yes | ports, flags |
//! | UDP, UDP-Lite, SCTP, DCCP | `Transport` | yes | ports |
//! | ICMP in IPv4, `ICMPv6` in IPv6 | `Transport` | yes | type, code |
//! | anything else, ESP and "no next header" included | `Transport` | yes | none |
//! | IPv4: options, authentication header | as what follows | | |
//! | IPv6: up to [`MAX_EXTENSIONS`] of hop-by-hop, routing, fragment, authentication, destination options, mobility, HIP, shim6 | as what follows | | |
//! | first fragment | as what follows | | |
//! | later fragment | `LaterFragment` | unless more extension headers follow | none |
//! | more extension headers, or past byte [`MAX_TRANSPORT_OFFSET`] | `TooDeep` | none | none |
//! | frame ends in an extension header | `Cut` | if its next header field is there | none |
//! | IPv4 header length below 5 words, or past the frame | `Cut` | from the fixed header | none |
//! | frame ends in the transport header | `Cut` | yes | what is there |
//!
//! Ports need four bytes of a transport header, the TCP flags fourteen, ICMP two. The length fields
//! of IP, UDP and TCP are not asked: the bytes of the frame decide, padding included. Offloads
//! leave those fields zero, and what the stack cuts off it also does not deliver.

mod bytes;
mod chain;
mod ether;
mod extension;
mod facts;
mod inner;
mod ip;
mod protocol;
mod segments;
mod simple;
mod transport;

pub use bytes::{Bytes, Layer3, MAX_EXTENSIONS, MAX_TRANSPORT_OFFSET, TcFrame};
pub use extension::{Extension, extension};
pub use facts::Facts;
pub use inner::inner;
pub use segments::Segments;
pub use simple::read_simple;

use limiter_common::header::Reach;
use limiter_common::source::Source;
use limiter_common::verdict::Reason;

/// The result of the parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Charged to this source.
    From(Source),
    /// Passes without being charged.
    Exempt(Reason),
}

/// Finds the source of a frame, or the destination of one on its way out, and nothing more.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn parse(frame: &impl Bytes) -> Packet {
    match simple::source(frame) {
        Some(source) => Packet::From(source),
        None => walk_to_source(frame),
    }
}

/// [`parse`] of any frame, from header to header.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn walk_to_source(frame: &impl Bytes) -> Packet {
    let source = match ether::link(frame) {
        Ok(ether::Link { network: ether::Network::V4, offset, .. }) => ip::v4_source(frame, offset),
        Ok(ether::Link { network: ether::Network::V6, offset, .. }) => ip::v6_source(frame, offset),
        Err(reason) => Err(reason),
    };
    match source {
        Ok(source) => Packet::From(source),
        Err(reason) => Packet::Exempt(reason),
    }
}

/// Finds everything that rules and actions ask for, and leaves it in `facts`.
///
/// The XDP program keeps `facts` in a per-CPU map. On its stack, the compiler would keep every byte
/// of both addresses in a register of its own, and run out of stack to spill them to.
///
/// # Errors
///
/// The reason why the frame passes without being charged, the same as [`parse`] gives. `facts` is
/// unchanged then.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn facts(frame: &impl Bytes, facts: &mut Facts) -> Result<(), Reason> {
    if read_simple(frame, facts) {
        return Ok(());
    }
    walk(frame, facts)
}

/// [`facts`] of any frame, from header to header.
///
/// # Errors
///
/// Errors of [`facts`].
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn walk(frame: &impl Bytes, facts: &mut Facts) -> Result<(), Reason> {
    let link = ether::link(frame)?;
    let header = match link.network {
        ether::Network::V4 => ip::v4(frame, link.offset, facts)?,
        ether::Network::V6 => ip::v6(frame, link.offset, facts)?,
    };
    facts.set_link(link.vlan, link.offset);
    let end = chain::walk(frame, &header);
    facts.set_fragment(end.fragment);
    facts.set_reach(end.reach);
    if end.known {
        facts.set_protocol(end.protocol);
        if matches!(end.reach, Reach::Transport) {
            transport::read(frame, header.version, end.protocol, end.offset, facts);
        }
    }
    if frame.is_out() {
        facts.turn_out();
    }
    Ok(())
}
