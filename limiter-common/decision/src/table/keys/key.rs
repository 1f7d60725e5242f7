//! The key of a packet in a table, from its facts.

use core::hint::black_box;

use bytemuck::{Pod, Zeroable};
use limiter_common::header::{ACK, Direction, FIN, Fragment, RST, Reach, SYN, Version};
use limiter_common::wire::{FRAGMENT_SHIFT, FlagClass, KeyName, Table, TableKey, field};

use super::key_cell::KeyCell;
use crate::maps::Maps;
use crate::packet::Facts;

/// The number of the [`FlagClass`] of a packet; 0 for protocols other than TCP.
///
/// A packet that cannot be distinguished from an attempt to open a connection counts as one: TCP
/// whose flags were cut off, and a chain of headers too deep to know the protocol. Otherwise tiny
/// fragments and long chains would evade the limit.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn flag_class(facts: &Facts) -> u8 {
    match facts.tcp_flags() {
        Some(flags) => class_of(flags),
        None if matches!(facts.opens_connection(), Some(false)) => 0,
        None => FlagClass::Syn as u8,
    }
}

/// The number of the class of TCP flags, from a table of four bits for each combination of relevant
/// flags, so that no branches are needed.
#[cfg_attr(target_arch = "bpf", inline(always))]
const fn class_of(flags: u8) -> u8 {
    let row = (flags & (FIN | SYN | RST) | (flags & ACK) >> 1) as u32;
    (CLASSES >> ((row * 4) & 63) & 15) as u8
}

const _: () = assert!(FIN | SYN | RST == 7 && ACK >> 1 == 8);

const CLASSES: u64 = {
    let (mut classes, mut row) = (0, 0);
    while row < 16 {
        let (fin, syn, rst, ack) = (row & 1 != 0, row & 2 != 0, row & 4 != 0, row & 8 != 0);
        let class = match (syn, ack) {
            (true, false) => FlagClass::Syn,
            (true, true) => FlagClass::SynAck,
            _ if rst => FlagClass::Rst,
            _ if fin => FlagClass::Fin,
            (false, true) => FlagClass::Ack,
            _ => FlagClass::Other,
        };
        classes |= (class as u64) << (4 * row);
        row += 1;
    }
    classes
};

/// The kind of fragment as which a packet counts.
///
/// A chain of headers too deep to walk may hide any kind: it counts as a later fragment. Otherwise
/// long chains would evade a budget of fragments.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn fragment_class(facts: &Facts) -> Fragment {
    if matches!(facts.reach(), Reach::TooDeep) { Fragment::Later } else { facts.fragment() }
}

/// The facts of a packet in the form of a key: everything that a table may ask for.
///
/// Made once per packet. So each table only needs a mask for its key, without branches: without
/// `CAP_PERFMON`, the verifier follows both sides of every branch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct KeyFacts {
    /// The first three words of [`TableKey`], with all facts in them.
    words: [u64; 3],
    /// The second of those words for tables with [`field::INNER`].
    inner_word: u64,
    /// Bits of [`field`] that the packet has, and [`INNER_V4`].
    has: u64,
}

/// Bit of [`KeyFacts::has`]: the packet inside the tunnel is IPv4.
const INNER_V4: u32 = 1 << 31;

/// Bits of [`field`] for the family of a table.
const FAMILIES: u32 = field::V4 | field::V6;

const _: () = assert!(field::OUT == field::IN << Direction::Out as u32);

/// Facts that every packet has: bits of [`field`].
const ALWAYS: u32 = field::SOURCE
    | field::DESTINATION
    | field::INTERFACE
    | field::DSCP
    | field::FRAGMENT
    | field::PACKET_LENGTH
    | field::TTL;

impl KeyFacts {
    /// No facts.
    pub const EMPTY: Self = Self { words: [0; 3], inner_word: 0, has: 0 };

    /// The facts that the packet has: bits of [`field`].
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) const fn has(&self) -> u64 {
        self.has
    }

    /// The first three words of the key with all facts in it.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) const fn words(&self) -> [u64; 3] {
        self.words
    }

    /// The facts of a packet.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn of(facts: &Facts) -> Self {
        let family = if matches!(facts.version(), Version::V4) { field::V4 } else { field::V6 };
        let direction = field::IN << facts.direction() as u32;
        let mut has = ALWAYS | family | direction | facts.known_fields();
        // Absent facts are zero.
        let mut key = TableKey {
            interface: facts.interface(),
            protocol: facts.protocol().unwrap_or(0),
            flags: (fragment_class(facts) as u8) << FRAGMENT_SHIFT,
            version: facts.version() as u8,
            ttl: facts.ttl().into(),
            dscp: facts.dscp().into(),
            vlan: facts.vlan().unwrap_or(0),
            packet_length: facts.packet_length(),
            ..TableKey::EMPTY
        };
        if let Some(ports) = facts.ports() {
            key.destination_port = ports.destination;
            key.source_port = ports.source;
        }
        if let Some(icmp) = facts.icmp() {
            key.destination_port = icmp.message(facts.version()).into();
        }
        let class = flag_class(facts);
        if class != 0 {
            key.flags |= class;
            has |= field::TCP_FLAGS;
        }
        let inner = facts.inner_version();
        if let Some(version) = inner {
            has |= field::INNER;
            if matches!(version, Version::V4) {
                has |= INNER_V4;
            }
        }
        let inner = TableKey { version: inner.map_or(0, |version| version as u8), ..key };
        let [first, second, third, ..]: [u64; 7] = bytemuck::cast(key);
        let [_, inner_word, ..]: [u64; 7] = bytemuck::cast(inner);
        Self { words: [first, second, third], inner_word, has: u64::from(has) }
    }
}

/// True if a packet is in a table: it has all required facts, and the values on which all rules
/// agree.
#[cfg_attr(target_arch = "bpf", inline(always))]
const fn is_in(table: &Table, key_facts: &KeyFacts) -> bool {
    let (lacks, families) = compared(table, key_facts);
    lacks == 0 && families != 0
}

/// 1 if a packet is in a table ([`is_in`]), otherwise 0; without a branch.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn in_bit(table: &Table, key_facts: &KeyFacts) -> u32 {
    let (lacks, families) = compared(table, key_facts);
    let is_one = families >> field::V4.trailing_zeros() | families >> field::V6.trailing_zeros();
    (lacks_none(lacks) & is_one & 1) as u32
}

/// 1 for 0, otherwise 0, with arbitrary bits above. Written so that the compiler makes no
/// comparison, and so no branch.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) const fn lacks_none(bits: u64) -> u64 {
    let halved = bits >> 1 | bits & 1;
    !(halved.wrapping_add(u64::MAX >> 1) >> 63)
}

/// Facts and agreed bits of a table that a packet lacks, 0 if it has all; and the common families.
#[cfg_attr(target_arch = "bpf", inline(always))]
const fn compared(table: &Table, key_facts: &KeyFacts) -> (u64, u64) {
    let fields = table.fields as u64;
    let families = FAMILIES as u64;
    // Tables with `INNER` are of both families.
    let lacks = fields & !families & !key_facts.has | differs(table, key_facts);
    (lacks, fields & families & key_facts.has)
}

/// The key of a packet in a table; `None` if it is not in the table.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn locate(table: &Table, facts: &Facts, key_facts: &KeyFacts) -> Option<TableKey> {
    if is_in(table, key_facts) { Some(key_in(table, facts, key_facts)) } else { None }
}

#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn key_in(table: &Table, facts: &Facts, key_facts: &KeyFacts) -> TableKey {
    let fields = u64::from(table.fields);
    let KeyFacts { words: [first, outer_word, third], inner_word, has } = *key_facts;
    let inner = mask_of(fields, field::INNER);
    let is_v4 = mix(inner, mask_of(has, INNER_V4), mask_of(has, field::V4));
    let [first_mask, second_mask, third_mask] = table.words;
    let [v4_source, v6_source] = &table.source_masks;
    let [v4_destination, v6_destination] = &table.destination_masks;
    let ([high, low], [inner_high, inner_low]) = (facts.source_words(), facts.inner_words());
    let source = [mix(inner, inner_high, high), mix(inner, inner_low, low)];
    // Masks of facts that the table does not ask for are zero.
    let [to_high, to_low] =
        masked(facts.destination_words(), v4_destination, v6_destination, is_v4);
    let [from_high, from_low] = masked(source, v4_source, v6_source, is_v4);
    // The id is in the first four bytes, where the words have nothing.
    let id: u64 = bytemuck::cast([table.id, 0]);
    let words = [
        first & first_mask | id,
        mix(inner, inner_word, outer_word) & second_mask,
        third & third_mask,
        to_high,
        to_low,
        from_high,
        from_low,
    ];
    bytemuck::cast(words)
}

/// The name of the key of a packet in a table, if names can hold all keys of the table.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn name_in(table: &Table, facts: &Facts, key_facts: &KeyFacts) -> Option<KeyName> {
    let KeyFacts { words: [_, second, third], has, .. } = *key_facts;
    let [_, second_mask, third_mask] = table.words;
    let (second, third) = (second & second_mask, third & third_mask);
    if !KeyName::fits(table, second) {
        return None;
    }
    let [[_, v4_mask], [v6_mask, _]] = table.source_masks;
    let [high, low] = facts.source_words();
    let is_v4 = has & u64::from(field::V4) != 0;
    let address = if is_v4 { (low & v4_mask) >> 32 } else { high & v6_mask };
    Some(KeyName::of_words(table.id, address, second, third))
}

/// Bits of the facts that differ from the values on which all rules of the table agree. The second
/// word is that of the outer packet: [`Table::agreed`] does not contain the inner version.
#[cfg_attr(target_arch = "bpf", inline(always))]
const fn differs(table: &Table, key_facts: &KeyFacts) -> u64 {
    let [first, second, third] = key_facts.words;
    let [first_value, second_value, third_value] = table.agreed_values;
    let [first_mask, second_mask, third_mask] = table.agreed;
    (first ^ first_value) & first_mask
        | (second ^ second_value) & second_mask
        | (third ^ third_value) & third_mask
}

/// All ones if a bit is set, otherwise zero. Opaque to the compiler, so that it makes no branch.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn mask_of(bits: u64, bit: u32) -> u64 {
    black_box(bits >> bit.trailing_zeros() & 1).wrapping_neg()
}

/// Mixed instead of selected: a selection would make a pointer with an offset that depends on the
/// path, which the verifier allows only with `CAP_PERFMON`.
#[cfg_attr(target_arch = "bpf", inline(always))]
const fn mix(mask: u64, ones: u64, zeros: u64) -> u64 {
    ones & mask | zeros & !mask
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn masked([high, low]: [u64; 2], v4: &[u64; 2], v6: &[u64; 2], is_v4: u64) -> [u64; 2] {
    let ([v4_high, v4_low], [v6_high, v6_low]) = (v4, v6);
    [high & mix(is_v4, *v4_high, *v6_high), low & mix(is_v4, *v4_low, *v6_low)]
}

/// Stores a key in its memory, with its name.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn put<W: Maps>(maps: &W, place: &KeyCell, key: TableKey) {
    place.set(key, |key| maps.key_name(key));
}
