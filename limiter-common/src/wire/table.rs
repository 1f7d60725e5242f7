//! Tables: which facts of a packet make its key, and how a key finds its rule.

use bytemuck::{Pod, Zeroable};

/// The most tables beside the source table.
pub const MAX_TABLES: u32 = 8;

/// The most shapes of a table: combinations of keys with and without a value, and of lengths of
/// destination prefixes.
pub const MAX_SHAPES: u32 = 16;

/// Bits of [`Table::fields`].
pub mod field {
    /// The masked source address.
    pub const SOURCE: u32 = 1;
    /// The masked destination address.
    pub const DESTINATION: u32 = 1 << 1;
    /// The destination port of TCP, UDP, UDP-Lite, SCTP or DCCP.
    pub const DESTINATION_PORT: u32 = 1 << 2;
    /// The protocol number.
    pub const PROTOCOL: u32 = 1 << 3;
    /// The [`super::FlagClass`] of TCP.
    pub const TCP_FLAGS: u32 = 1 << 4;
    /// The interface that the packet came in by.
    pub const INTERFACE: u32 = 1 << 5;
    /// The id of the outer VLAN tag.
    pub const VLAN: u32 = 1 << 6;
    /// The differentiated services code point.
    pub const DSCP: u32 = 1 << 7;
    /// The table is for IPv4.
    pub const V4: u32 = 1 << 8;
    /// The table is for IPv6.
    pub const V6: u32 = 1 << 9;
    /// Which piece of a larger packet it is.
    pub const FRAGMENT: u32 = 1 << 10;
    /// The masked source address of the packet inside a tunnel, in the place of [`SOURCE`]. The
    /// table has neither that nor [`DESTINATION`], and its families are those of the packet inside.
    pub const INNER: u32 = 1 << 11;
}

/// What the flags of a TCP segment say, in classes that exclude each other; the first that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum FlagClass {
    /// SYN without ACK, whatever else is set, and TCP whose flags cannot be read: an attempt to
    /// open a connection.
    Syn = 1,
    /// SYN and ACK.
    SynAck = 2,
    /// RST.
    Rst = 3,
    /// FIN.
    Fin = 4,
    /// ACK, and none of those before.
    Ack = 5,
    /// None of those.
    Other = 6,
}

impl FlagClass {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 6] =
        [Self::Syn, Self::SynAck, Self::Rst, Self::Fin, Self::Ack, Self::Other];

    /// Its name in rule files.
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

/// The key of a bucket: the facts that the table asks for, the others zero. Multi-byte fields are
/// in host order but for the addresses, which are in network order, IPv4 as IPv4-mapped IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct TableKey {
    /// [`Table::id`]. In the rule trie: the table's index in the generation, times [`MAX_SHAPES`],
    /// plus the shape's.
    pub table: u32,
    /// Interface index.
    pub interface: u32,
    /// VLAN id.
    pub vlan: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Protocol number.
    pub protocol: u8,
    /// A [`FlagClass`] in the low four bits, a [`crate::packet::Fragment`] in the next four.
    pub flags: u8,
    /// DSCP.
    pub dscp: u8,
    /// IP version, 4 or 6; 0 where no address is part of the key.
    pub version: u8,
    /// Masked destination address.
    pub destination: [u64; 2],
    /// Masked source address.
    pub source: [u64; 2],
}

const _: () = assert!(size_of::<TableKey>() == 48);

impl TableKey {
    /// A key of no facts.
    pub const EMPTY: Self = Self {
        table: 0,
        interface: 0,
        vlan: 0,
        destination_port: 0,
        protocol: 0,
        flags: 0,
        dscp: 0,
        version: 0,
        destination: [0; 2],
        source: [0; 2],
    };
}

/// Bits of [`TableKey::flags`] that are the class of TCP flags.
pub const FLAG_CLASS_BITS: u8 = 0x0f;

/// Bits of [`TableKey::flags`] that say which piece of a larger packet it is.
pub const FRAGMENT_BITS: u8 = 0xf0;

/// Where they begin.
pub const FRAGMENT_SHIFT: u32 = 4;

/// Bits of a [`TableKey`] before the source address: all of them count in the rule trie.
pub const TRIE_FIXED_BITS: u32 = 256;

/// One table of a rule set: the value of `TABLES`, at `buffer * MAX_TABLES + index`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Table {
    /// Part of every key, so that tables share one map. The same over all generations in which the
    /// table has the same keys and masks.
    pub id: u32,
    /// Bits of [`field`]. A packet is in the table when it has all of these facts.
    pub fields: u32,
    /// How many shapes it has.
    pub shapes: u32,
    /// The slot of the rule of a table without keys, [`crate::bucket::Slot::NONE`] otherwise. Such
    /// a rule has a shared budget.
    pub fixed: u32,
    /// The bits of the first two words of a [`TableKey`] that are part of the key:
    /// [`Table::words`].
    pub words: [u64; 2],
    /// Masks of the source address, of IPv4 (in IPv4-mapped form) and of IPv6.
    pub source_masks: [[u64; 2]; 2],
    /// Masks of the destination address, likewise.
    pub destination_masks: [[u64; 2]; 2],
}

const _: () = assert!(size_of::<Table>() == 96);

impl Table {
    /// Whether its keys are the sources of the source table: it has the rules by source that are
    /// more than one plain token bucket.
    #[inline(always)]
    pub const fn is_of_sources(&self) -> bool {
        let [[a, b], [c, d]] = self.source_masks;
        self.fields == field::SOURCE | field::V4 | field::V6 && a & b & c & !d == u64::MAX
    }

    /// What [`Table::words`] is for some fields.
    pub fn words(fields: u32) -> [u64; 2] {
        let has = |bit| fields & bit != 0;
        let byte = |bit| if has(bit) { u8::MAX } else { 0 };
        let short = |bit| if has(bit) { u16::MAX } else { 0 };
        let class = if has(field::TCP_FLAGS) { FLAG_CLASS_BITS } else { 0 };
        let piece = if has(field::FRAGMENT) { FRAGMENT_BITS } else { 0 };
        let key = TableKey {
            interface: if has(field::INTERFACE) { u32::MAX } else { 0 },
            vlan: short(field::VLAN),
            destination_port: short(field::DESTINATION_PORT),
            protocol: byte(field::PROTOCOL),
            flags: class | piece,
            dscp: byte(field::DSCP),
            version: byte(field::SOURCE | field::DESTINATION | field::INNER),
            ..TableKey::EMPTY
        };
        let [first, second, ..]: [u64; 6] = bytemuck::cast(key);
        [first, second]
    }
}

/// One shape of a table: which bits of a key its rules look at. The value of `SHAPES`, at
/// `(buffer * MAX_TABLES + table) * MAX_SHAPES + shape`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Shape {
    /// Ones where a bit of the key counts. [`TableKey::table`] is zero here, and
    /// [`TableKey::source`] is not asked: the trie knows its length.
    pub mask: TableKey,
}

const _: () = assert!(size_of::<Shape>() == 48);

/// The value of the rule trie: the slot, and above it the rank. Of the rules that the shapes of a
/// table find, the one with the highest rank is the most specific.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct TrieValue(u64);

impl TrieValue {
    /// Packs the two. Ranks start at 1.
    pub const fn new(rank: u32, slot: u32) -> Self {
        Self((rank as u64) << 32 | slot as u64)
    }

    /// The larger one has the higher rank; zero is none.
    #[inline(always)]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Takes the value as it stands in the map.
    #[inline(always)]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The slot.
    #[inline(always)]
    pub const fn slot(self) -> u32 {
        (self.0 & 0xffff_ffff) as u32
    }
}
