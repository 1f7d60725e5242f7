//! The facts of a packet, beyond the source that is charged.

use core::hint::black_box;

use bytemuck::{Pod, Zeroable};
use limiter_common::header::{ACK, Direction, Fragment, Icmp, Ports, Reach, SYN, TCP, Version};
use limiter_common::source::Source;
use limiter_common::wire::{FlowKey, field};

use super::bytes::low_16;
use super::ether::NO_VLAN;

// Bits of `Facts::known`.
const VLAN: u8 = 1;
const PROTOCOL: u8 = 1 << 1;
const TRANSPORT: u8 = 1 << 2;
const PORTS: u8 = 1 << 3;
const TCP_FLAGS: u8 = 1 << 4;
const ICMP: u8 = 1 << 5;

/// The facts of one packet, from [`super::facts`].
///
/// Plain data that may live in a map: the stack of the XDP program is small. What is absent is zero
/// and says so through its getter, so equal packets have equal facts, byte by byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
// Aligned, so that it is cleared and copied by words.
#[repr(C, align(8))]
pub struct Facts {
    /// The addresses in words, as they stand in memory: of bytes, the compiler makes loops.
    source: [u64; 2],
    destination: [u64; 2],
    inner: [u64; 2],
    source_port: u16,
    destination_port: u16,
    vlan: u16,
    network_offset: u16,
    transport_offset: u16,
    packet_length: u16,
    version: u8,
    traffic_class: u8,
    protocol: u8,
    tcp_flags: u8,
    icmp_kind: u8,
    icmp_code: u8,
    fragment: u8,
    reach: u8,
    known: u8,
    inner_version: u8,
    ttl: u8,
    /// A [`Direction`].
    direction: u8,
    reserved: [u8; 4],
    interface: u32,
}

const _: () = assert!(size_of::<Facts>() == 80);

impl Facts {
    /// The flow of the packet.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn flow(&self) -> FlowKey {
        let ports = self.ports();
        FlowKey {
            source: bytemuck::cast(self.source_address()),
            destination: bytemuck::cast(self.destination_address()),
            source_port: ports.map_or(0, |ports| ports.source),
            destination_port: ports.map_or(0, |ports| ports.destination),
            version: self.version() as u16,
            protocol: self.protocol().map_or(256, u16::from),
        }
    }

    /// Room for facts: those of a packet that says nothing.
    pub const EMPTY: Self = Self {
        source: [0; 2],
        destination: [0; 2],
        inner: [0; 2],
        source_port: 0,
        destination_port: 0,
        vlan: 0,
        network_offset: 0,
        transport_offset: 0,
        packet_length: 0,
        version: 0,
        traffic_class: 0,
        protocol: 0,
        tcp_flags: 0,
        icmp_kind: 0,
        icmp_code: 0,
        fragment: 0,
        reach: 0,
        known: 0,
        inner_version: 0,
        ttl: 0,
        direction: Direction::In as u8,
        reserved: [0; 4],
        interface: 0,
    };

    /// Forgets everything. Word by word, of a zero that the compiler does not see: it would call
    /// memset, whose loop over a map value the verifier grants only with `CAP_PERFMON`.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn clear(&mut self) {
        let zero = black_box(0);
        let [w0, w1, w2, w3, w4, w5, w6, w7, w8, w9]: &mut [u64; 10] = bytemuck::cast_mut(self);
        (*w0, *w1, *w2, *w3) = (zero, zero, zero, zero);
        (*w4, *w5, *w6, *w7) = (zero, zero, zero, zero);
        (*w8, *w9) = (zero, zero);
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn set_link(&mut self, vlan: u16, network_offset: usize) {
        if vlan != NO_VLAN {
            self.vlan = vlan;
            self.known |= VLAN;
        }
        self.network_offset = low_16(network_offset);
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn set_network(&mut self, version: Version, traffic_class: u8) {
        self.version = version as u8;
        self.traffic_class = traffic_class;
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn set_size(&mut self, packet_length: u16, ttl: u8) {
        self.packet_length = packet_length;
        self.ttl = ttl;
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn set_addresses(&mut self, source: [u64; 2], destination: [u64; 2]) {
        self.source = source;
        self.destination = destination;
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn set_inner(&mut self, version: Version, source: [u64; 2]) {
        self.inner_version = version as u8;
        self.inner = source;
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn set_fragment(&mut self, fragment: Fragment) {
        self.fragment = fragment as u8;
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn set_protocol(&mut self, protocol: u8) {
        self.protocol = protocol;
        self.known |= PROTOCOL;
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn set_reach(&mut self, reach: Reach) {
        self.reach = reach as u8;
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn set_transport_offset(&mut self, offset: usize) {
        self.transport_offset = low_16(offset);
        self.known |= TRANSPORT;
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn set_ports(&mut self, ports: Ports) {
        self.source_port = ports.source;
        self.destination_port = ports.destination;
        self.known |= PORTS;
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn set_tcp_flags(&mut self, flags: u8) {
        self.tcp_flags = flags;
        self.known |= TCP_FLAGS;
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn set_icmp(&mut self, icmp: Icmp) {
        self.icmp_kind = icmp.kind;
        self.icmp_code = icmp.code;
        self.known |= ICMP;
    }

    /// Makes these, which were read from a packet on its way out, the facts of its conversation:
    /// exchanges the addresses and the ports, so that the other end is the source.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn turn_out(&mut self) {
        (self.source, self.destination) = (self.destination, self.source);
        (self.source_port, self.destination_port) = (self.destination_port, self.source_port);
        self.direction = Direction::Out as u8;
    }

    /// The direction of the packet. Of one on its way out, what is called source here is the other
    /// end, which the packet is sent to, and the destination is this end.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn direction(&self) -> Direction {
        if self.direction == Direction::In as u8 { Direction::In } else { Direction::Out }
    }

    /// Says which interface the frame came in by or goes out by: no byte of it does.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn set_interface(&mut self, index: u32) {
        self.interface = index;
    }

    /// The interface that the frame came in by or goes out by, 0 where nobody said so.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn interface(&self) -> u32 {
        self.interface
    }

    /// The IP version.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn version(&self) -> Version {
        if self.version == Version::V4 as u8 { Version::V4 } else { Version::V6 }
    }

    /// The source that is charged: the same as [`super::parse`] finds.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn source(&self) -> Source {
        let [high, low] = self.source;
        match (self.version(), low.to_ne_bytes()) {
            (Version::V4, [_, _, _, _, a, b, c, d]) => Source::V4([a, b, c, d]),
            (Version::V6, _) => Source::V6(high.to_ne_bytes()),
        }
    }

    /// The whole source address in network order, IPv4 as IPv4-mapped IPv6 (RFC 4291, 2.5.5.2).
    ///
    /// An IPv6 packet may claim an IPv4-mapped source, so where IPv4 and IPv6 must not meet,
    /// [`Facts::version`] belongs to the key.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn source_address(&self) -> [u8; 16] {
        bytemuck::cast(self.source)
    }

    /// The version of the packet inside a tunnel, once [`super::inner`] has looked for one and
    /// found it.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn inner_version(&self) -> Option<Version> {
        match self.inner_version {
            4 => Some(Version::V4),
            6 => Some(Version::V6),
            _ => None,
        }
    }

    /// The whole source address of the packet inside a tunnel; form and warning as for
    /// [`Facts::source_address`].
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn inner_address(&self) -> [u8; 16] {
        bytemuck::cast(self.inner)
    }

    /// [`Facts::inner_address`] in words, as they stand in memory.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) const fn inner_words(&self) -> [u64; 2] {
        self.inner
    }

    /// [`Facts::source_address`] in words, as they stand in memory.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) const fn source_words(&self) -> [u64; 2] {
        self.source
    }

    /// [`Facts::destination_address`] in words, as they stand in memory.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) const fn destination_words(&self) -> [u64; 2] {
        self.destination
    }

    /// The whole destination address; form and warning as for [`Facts::source_address`].
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn destination_address(&self) -> [u8; 16] {
        bytemuck::cast(self.destination)
    }

    /// The id of the outer VLAN tag, 0 to 4095; 0 is a tag with a priority only. A tag that the
    /// network card has taken off is not there.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn vlan(&self) -> Option<u16> {
        if self.knows(VLAN) { Some(self.vlan) } else { None }
    }

    /// The differentiated services code point (RFC 2474), 0 to 63.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn dscp(&self) -> u8 {
        self.traffic_class >> 2
    }

    /// Explicit congestion notification (RFC 3168), 0 to 3.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn ecn(&self) -> u8 {
        self.traffic_class & 3
    }

    /// The length of the IP packet in bytes, as its header says, 65,535 for anything longer. The
    /// network stack drops a packet that is shorter than that, and cuts one that is longer.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn packet_length(&self) -> u16 {
        self.packet_length
    }

    /// The time to live of IPv4, the hop limit of IPv6.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn ttl(&self) -> u8 {
        self.ttl
    }

    /// The kind of fragment that the packet is.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn fragment(&self) -> Fragment {
        match self.fragment {
            0 => Fragment::Whole,
            1 => Fragment::First,
            _ => Fragment::Later,
        }
    }

    /// The reach of the facts.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn reach(&self) -> Reach {
        match self.reach {
            0 => Reach::Transport,
            1 => Reach::LaterFragment,
            2 => Reach::TooDeep,
            _ => Reach::Cut,
        }
    }

    /// The protocol number behind the extension headers; 50 (ESP) and 59 (no next header) end the
    /// chain and so stand here themselves. `None` where no header that was reached names it.
    ///
    /// In a later fragment it is the first fragment's, unless that has more extension headers
    /// behind its fragment header: then `None`.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn protocol(&self) -> Option<u8> {
        if self.knows(PROTOCOL) { Some(self.protocol) } else { None }
    }

    /// The offset of the network header, in bytes from the frame's start: 14, 18 or 22, or 0 in a
    /// frame without an Ethernet header.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn network_offset(&self) -> u16 {
        self.network_offset
    }

    /// The offset of the header of [`Facts::protocol`], in bytes from the frame's start, at most
    /// [`super::MAX_TRANSPORT_OFFSET`] and never behind the frame's end. `None` for a later
    /// fragment and when the chain could not be walked to its end.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn transport_offset(&self) -> Option<u16> {
        if self.knows(TRANSPORT) { Some(self.transport_offset) } else { None }
    }

    /// The ports; `None` for protocols without, and where they could not be reached.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn ports(&self) -> Option<Ports> {
        if self.knows(PORTS) {
            Some(Ports { source: self.source_port, destination: self.destination_port })
        } else {
            None
        }
    }

    /// The flag byte of TCP: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn tcp_flags(&self) -> Option<u8> {
        if self.knows(TCP_FLAGS) { Some(self.tcp_flags) } else { None }
    }

    /// Type and code of ICMP.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn icmp(&self) -> Option<Icmp> {
        if self.knows(ICMP) {
            Some(Icmp { kind: self.icmp_kind, code: self.icmp_code })
        } else {
            None
        }
    }

    /// `Some(true)` if the frame tries to open a TCP connection: SYN without ACK. A later fragment
    /// does not; its first fragment was judged for it.
    ///
    /// `None` when that cannot be known: TCP without readable flags, or an unknown protocol. A
    /// limit of connection attempts has to charge those as attempts, or tiny fragments and long
    /// chains are a way around it.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn opens_connection(&self) -> Option<bool> {
        if self.knows(TCP_FLAGS) {
            return Some(self.tcp_flags & (SYN | ACK) == SYN);
        }
        let not_tcp = self.knows(PROTOCOL) && self.protocol != TCP;
        match self.reach() {
            Reach::Transport | Reach::LaterFragment => Some(false),
            Reach::Cut if not_tcp => Some(false),
            Reach::Cut | Reach::TooDeep => None,
        }
    }

    /// The facts that not every packet has and this one does, but for the flags of TCP: bits of
    /// [`field`]. Moved from bit to bit, because a branch for each took longer.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) const fn known_fields(&self) -> u32 {
        let known = self.known as u32;
        moved(known, VLAN, field::VLAN)
            | moved(known, PROTOCOL, field::PROTOCOL)
            | moved(known, PORTS, field::DESTINATION_PORT)
            | moved(known, PORTS, field::SOURCE_PORT)
            | moved(known, ICMP, field::ICMP_TYPE)
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    const fn knows(&self, bit: u8) -> bool {
        self.known & bit != 0
    }
}

/// The bit `to` if the bit `from` is set.
#[cfg_attr(target_arch = "bpf", inline(always))]
const fn moved(known: u32, from: u8, to: u32) -> u32 {
    (known >> from.trailing_zeros() & 1) << to.trailing_zeros()
}
