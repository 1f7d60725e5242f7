//! Builds frames byte by byte: Ethernet, VLAN tags, IPv4 with options, IPv6 with extension
//! headers, fragments, UDP, TCP and ICMP, with right lengths and checksums.
//!
//! ```text
//! use limiter_sandbox::packet::{Frame, Transport};
//!
//! let frame = Frame::ipv4([192, 0, 2, 1], [192, 0, 2, 254])
//!     .vlan(100)
//!     .transport(Transport::Udp { source: 40_000, destination: 9 })
//!     .payload(&[0; 18])
//!     .build();
//! assert_eq!(frame.len(), 14 + 4 + 20 + 8 + 18);
//! ```

pub(crate) mod checksum;
mod network;
mod transport;

pub use network::{Extension, Fragment};
pub use transport::Transport;

use network::Network;

pub use crate::veth::Mac;

/// The largest frame that byte bursts are checked against, in bytes.
pub const MAX_FRAME: u64 = 1522;

/// `EtherType` of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// `EtherType` of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// Tag protocol of a customer VLAN (IEEE 802.1Q).
pub const TAG_CUSTOMER: u16 = 0x8100;
/// Tag protocol of a service VLAN (IEEE 802.1ad).
pub const TAG_SERVICE: u16 = 0x88a8;

/// A frame in the making. Starts as UDP to the discard port between the two ends of
/// [`crate::veth`], without payload.
#[derive(Clone, Debug)]
pub struct Frame {
    source: Mac,
    destination: Mac,
    tags: Vec<(u16, u16)>,
    network: Network,
    transport: Transport,
    payload: Vec<u8>,
}

impl Frame {
    /// A frame with an IPv4 packet.
    pub fn ipv4(source: impl Into<[u8; 4]>, destination: impl Into<[u8; 4]>) -> Self {
        Self::with(Network::ipv4(source.into(), destination.into()))
    }

    /// A frame with an IPv6 packet.
    pub fn ipv6(source: impl Into<[u8; 16]>, destination: impl Into<[u8; 16]>) -> Self {
        Self::with(Network::ipv6(source.into(), destination.into()))
    }

    fn with(network: Network) -> Self {
        Self {
            source: crate::veth::SENDER.mac,
            destination: crate::veth::RECEIVER.mac,
            tags: Vec::new(),
            network,
            transport: Transport::Udp { source: 40_000, destination: 9 },
            payload: Vec::new(),
        }
    }

    /// Sets the Ethernet addresses.
    #[must_use]
    pub fn macs(mut self, source: Mac, destination: Mac) -> Self {
        self.source = source;
        self.destination = destination;
        self
    }

    /// Adds a customer VLAN tag inside the ones that are there. `id` has 12 bits.
    #[must_use]
    pub fn vlan(self, id: u16) -> Self {
        self.tag(TAG_CUSTOMER, id & 0xfff)
    }

    /// Adds a tag with any tag protocol and tag control information inside the ones that are there.
    #[must_use]
    pub fn tag(mut self, protocol: u16, control: u16) -> Self {
        self.tags.push((protocol, control));
        self
    }

    /// Sets the IPv4 options, padded with "end of options" to a multiple of four bytes, at most 40.
    ///
    /// # Panics
    ///
    /// When there are more than 40 bytes, or the packet is IPv6.
    #[must_use]
    pub fn options(mut self, options: &[u8]) -> Self {
        self.network.set_options(options);
        self
    }

    /// Adds an IPv6 extension header after the ones that are there.
    ///
    /// # Panics
    ///
    /// When the packet is IPv4.
    #[must_use]
    pub fn extension(mut self, extension: Extension) -> Self {
        self.network.add_extension(extension);
        self
    }

    /// Makes the packet a fragment: in the IPv4 header, or as an IPv6 fragment header after the
    /// extension headers that are there. A later fragment has no transport header, only payload.
    #[must_use]
    pub fn fragment(mut self, fragment: Fragment) -> Self {
        self.network.set_fragment(fragment);
        self
    }

    /// Sets what the IP packet carries.
    #[must_use]
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// Sets the bytes behind the transport header.
    #[must_use]
    pub fn payload(mut self, payload: &[u8]) -> Self {
        payload.clone_into(&mut self.payload);
        self
    }

    /// The finished frame, without frame check sequence and without padding to 60 bytes.
    pub fn build(&self) -> Vec<u8> {
        let mut frame = Vec::with_capacity(128 + self.payload.len());
        frame.extend(self.destination);
        frame.extend(self.source);
        for (protocol, control) in &self.tags {
            frame.extend(protocol.to_be_bytes());
            frame.extend(control.to_be_bytes());
        }
        frame.extend(self.network.ethertype().to_be_bytes());
        let segment = if self.network.is_later_fragment() {
            self.payload.clone()
        } else {
            self.transport.segment(&self.network, &self.payload)
        };
        self.network.write(&mut frame, self.transport.protocol(self.network.is_ipv6()), &segment);
        frame
    }
}

#[cfg(test)]
mod tests;
