//! The key of a bucket: the packet facts that may be in it, and the place of each.

use bytemuck::{Pod, Zeroable};

/// Facts that a key may have: bits of [`super::Table::fields`].
pub mod field {
    /// The masked source address.
    pub const SOURCE: u32 = 1;
    /// The masked destination address.
    pub const DESTINATION: u32 = 1 << 1;
    /// The destination port of TCP, UDP, UDP-Lite, SCTP or DCCP.
    pub const DESTINATION_PORT: u32 = 1 << 2;
    /// Bit for [`super::TableKey::protocol`].
    pub const PROTOCOL: u32 = 1 << 3;
    /// The [`super::FlagClass`] of TCP.
    pub const TCP_FLAGS: u32 = 1 << 4;
    /// The interface by which the packet came in or goes out.
    pub const INTERFACE: u32 = 1 << 5;
    /// The id of the outer VLAN tag.
    pub const VLAN: u32 = 1 << 6;
    /// The differentiated services code point.
    pub const DSCP: u32 = 1 << 7;
    /// The table is for IPv4.
    pub const V4: u32 = 1 << 8;
    /// The table is for IPv6.
    pub const V6: u32 = 1 << 9;
    /// The kind of fragment that the packet is.
    pub const FRAGMENT: u32 = 1 << 10;
    /// The masked source address of the packet inside a tunnel, in the place of [`SOURCE`]. The
    /// table has neither that nor [`DESTINATION`], and its families are those of the inner packet.
    pub const INNER: u32 = 1 << 11;
    /// The type of ICMP or `ICMPv6`, from [`crate::header::Icmp::message`].
    pub const ICMP_TYPE: u32 = 1 << 12;
    /// The source port of TCP, UDP, UDP-Lite, SCTP or DCCP.
    pub const SOURCE_PORT: u32 = 1 << 13;
    /// The length of the IP packet.
    pub const PACKET_LENGTH: u32 = 1 << 14;
    /// The time to live of IPv4, the hop limit of IPv6.
    pub const TTL: u32 = 1 << 15;
    /// The table is only for incoming packets. A packet has this or [`OUT`], and neither has a
    /// place in a key: incoming and outgoing packets share the buckets of a table with neither.
    pub const IN: u32 = 1 << 16;
    /// The table is only for outgoing packets. Their facts are those of the conversation from the
    /// other end: their destination address and port are [`SOURCE`] and [`SOURCE_PORT`], and vice
    /// versa.
    pub const OUT: u32 = 1 << 17;
    /// Facts that a table may ask for and that have no place in a key.
    pub const CONDITIONS: u32 = V4 | V6 | IN | OUT;
}

/// Mutually exclusive classes of TCP flags; the first that fits applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum FlagClass {
    /// SYN without ACK, whatever else is set, and TCP with unreadable flags: an attempt to open a
    /// connection.
    Syn = 1,
    /// SYN and ACK.
    SynAck = 2,
    /// RST.
    Rst = 3,
    /// FIN.
    Fin = 4,
    /// ACK, and none of the above.
    Ack = 5,
    /// None of the above.
    Other = 6,
}

impl FlagClass {
    /// All classes, in the order of their numbers.
    pub const ALL: [Self; 6] =
        [Self::Syn, Self::SynAck, Self::Rst, Self::Fin, Self::Ack, Self::Other];

    /// Name in rule files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Syn => "syn",
            Self::SynAck => "syn-ack",
            Self::Rst => "rst",
            Self::Fin => "fin",
            Self::Ack => "ack",
            Self::Other => "other",
        }
    }
}

/// The key of a bucket: the facts that the table asks for; the others are zero. Multi-byte fields
/// are in host order, except the addresses, which are in network order, IPv4 as IPv4-mapped IPv6.
///
/// All fields except the addresses are in the first three words, and have a row in `PLACES`. Fields
/// of 16 bits are the lanes to which a [`super::Range`] can apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct TableKey {
    /// [`super::Table::id`]. In the rule trie: the table's index in the generation, times
    /// [`super::MAX_SHAPES`], plus the shape's.
    pub table: u32,
    /// Index of the interface by which the packet came in.
    pub interface: u32,
    /// Protocol number.
    pub protocol: u8,
    /// A [`FlagClass`] in the low four bits, a [`crate::header::Fragment`] in the next four.
    pub flags: u8,
    /// Zero.
    pub reserved: u8,
    /// IP version, 4 or 6; 0 if no address is part of the key.
    pub version: u8,
    /// Time to live.
    pub ttl: u16,
    /// DSCP.
    pub dscp: u16,
    /// VLAN id.
    pub vlan: u16,
    /// Destination port, or ICMP type: no packet has both, and no table asks for both.
    pub destination_port: u16,
    /// Source port.
    pub source_port: u16,
    /// Length of the IP packet in bytes.
    pub packet_length: u16,
    /// Masked destination address.
    pub destination: [u64; 2],
    /// Masked source address.
    pub source: [u64; 2],
}

const _: () = assert!(size_of::<TableKey>() == 56);

/// Bits of [`TableKey::flags`] that hold the class of TCP flags.
const FLAG_CLASS_BITS: u8 = 0x0f;

/// Bits of [`TableKey::flags`] that hold the kind of fragment.
const FRAGMENT_BITS: u8 = 0xf0;

/// The lowest bit of the kind of fragment in [`TableKey::flags`].
pub const FRAGMENT_SHIFT: u32 = 4;

/// Bits of a [`TableKey`] before the source address. All of them count in the rule trie.
pub const TRIE_FIXED_BITS: u32 = 320;

/// Facts in the first three words of a key, by their bits in [`field`], with ones at their places.
/// A key with any address has the version.
const PLACES: [(u32, TableKey); 12] = [
    (field::DESTINATION_PORT, TableKey { destination_port: u16::MAX, ..TableKey::EMPTY }),
    (field::ICMP_TYPE, TableKey { destination_port: 0xff, ..TableKey::EMPTY }),
    (field::PROTOCOL, TableKey { protocol: u8::MAX, ..TableKey::EMPTY }),
    (field::TCP_FLAGS, TableKey { flags: FLAG_CLASS_BITS, ..TableKey::EMPTY }),
    (field::INTERFACE, TableKey { interface: u32::MAX, ..TableKey::EMPTY }),
    (field::VLAN, TableKey { vlan: u16::MAX, ..TableKey::EMPTY }),
    (field::DSCP, TableKey { dscp: 0xff, ..TableKey::EMPTY }),
    (field::SOURCE_PORT, TableKey { source_port: u16::MAX, ..TableKey::EMPTY }),
    (field::PACKET_LENGTH, TableKey { packet_length: u16::MAX, ..TableKey::EMPTY }),
    (field::TTL, TableKey { ttl: 0xff, ..TableKey::EMPTY }),
    (field::FRAGMENT, TableKey { flags: FRAGMENT_BITS, ..TableKey::EMPTY }),
    (
        field::SOURCE | field::DESTINATION | field::INNER,
        TableKey { version: u8::MAX, ..TableKey::EMPTY },
    ),
];

impl TableKey {
    /// A key without facts.
    pub const EMPTY: Self = Self {
        table: 0,
        interface: 0,
        protocol: 0,
        flags: 0,
        reserved: 0,
        version: 0,
        ttl: 0,
        dscp: 0,
        vlan: 0,
        destination_port: 0,
        source_port: 0,
        packet_length: 0,
        destination: [0; 2],
        source: [0; 2],
    };

    /// The bits of the first three words for some facts, which are bits of [`field`].
    pub fn mask(fields: u32) -> [u64; 3] {
        let places = PLACES.iter().filter(|(bits, _)| fields & bits != 0);
        places.fold([0; 3], |mask, (_, place)| both(mask, place.words()))
    }

    /// The value of one fact at its place in the first three words.
    pub fn place(fact: u32, value: u32) -> [u64; 3] {
        Self::mask(fact)
            .map(|mask| u64::from(value).checked_shl(mask.trailing_zeros()).unwrap_or(0) & mask)
    }

    /// The value of one fact; 0 if the key does not contain it.
    pub fn value(&self, fact: u32) -> u32 {
        let words = self.words().into_iter().zip(Self::mask(fact));
        // All masks except one are zero.
        let value = words.fold(0, |value, (word, mask)| {
            value | (word & mask).checked_shr(mask.trailing_zeros()).unwrap_or(0)
        });
        u32::try_from(value).unwrap_or(u32::MAX)
    }

    /// The facts among `of` whose bits are all set, as in the mask of a [`super::Shape`].
    pub fn facts(&self, of: u32) -> u32 {
        let has = |place: &Self| self.with(place.words()) == *self;
        let places = PLACES.iter().filter(|(bits, place)| of & bits != 0 && has(place));
        places.fold(0, |facts, (bits, _)| facts | bits)
    }

    /// The first three words: everything except the addresses.
    pub fn words(&self) -> [u64; 3] {
        let [first, second, third, ..]: [u64; 7] = bytemuck::cast(*self);
        [first, second, third]
    }

    /// The key with other first three words.
    #[must_use]
    pub fn with(self, words: [u64; 3]) -> Self {
        let [_, _, _, rest @ ..]: [u64; 7] = bytemuck::cast(self);
        let ([first, second, third], [a, b, c, d]) = (both(self.words(), words), rest);
        bytemuck::cast([first, second, third, a, b, c, d])
    }
}

/// Bits that are set in one or the other.
fn both(
    [first, second, third]: [u64; 3],
    [other_first, other_second, other_third]: [u64; 3],
) -> [u64; 3] {
    [first | other_first, second | other_second, third | other_third]
}
