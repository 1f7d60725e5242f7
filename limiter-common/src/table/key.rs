//! From the facts of a packet to its key in a table.

use core::hint::black_box;

use crate::packet::{ACK, FIN, Facts, RST, SYN, TCP, Version};
use crate::wire::{FlagClass, Table, TableKey, field};

/// The class of a TCP segment's flags; `None` for other protocols.
///
/// What cannot be told from an attempt to open a connection counts as one: TCP whose flags were cut
/// off, and a chain of headers too deep to know the protocol. Otherwise tiny fragments and long
/// chains were a way around the limit.
#[inline(always)]
pub fn flag_class(facts: &Facts) -> Option<FlagClass> {
    if !matches!(facts.opens_connection(), Some(false)) {
        return Some(FlagClass::Syn);
    }
    if !matches!(facts.protocol(), Some(TCP)) {
        return None;
    }
    let flags = facts.tcp_flags()?;
    Some(if flags & (SYN | ACK) == SYN | ACK {
        FlagClass::SynAck
    } else if flags & RST != 0 {
        FlagClass::Rst
    } else if flags & FIN != 0 {
        FlagClass::Fin
    } else if flags & ACK != 0 {
        FlagClass::Ack
    } else {
        FlagClass::Other
    })
}

/// The key of a packet in a table; `None` when the packet has not all that the table asks for, and
/// so is not in it.
#[inline(always)]
pub fn locate(table: &Table, facts: &Facts) -> Option<TableKey> {
    let fields = table.fields;
    let v4 = matches!(facts.version(), Version::V4);
    let family = if v4 { field::V4 } else { field::V6 };
    if fields & family == 0 {
        return None;
    }
    let [v4_source, v6_source] = &table.source_masks;
    let [v4_destination, v6_destination] = &table.destination_masks;
    let addressed = fields & (field::SOURCE | field::DESTINATION) != 0;
    Some(TableKey {
        table: table.id,
        interface: if fields & field::INTERFACE != 0 { facts.interface() } else { 0 },
        vlan: if fields & field::VLAN != 0 { facts.vlan()? } else { 0 },
        destination_port: if fields & field::DESTINATION_PORT != 0 {
            facts.ports()?.destination
        } else {
            0
        },
        protocol: if fields & field::PROTOCOL != 0 { facts.protocol()? } else { 0 },
        tcp_flags: if fields & field::TCP_FLAGS != 0 { flag_class(facts)? as u8 } else { 0 },
        dscp: if fields & field::DSCP != 0 { facts.dscp() } else { 0 },
        version: if addressed { facts.version() as u8 } else { 0 },
        // Masks of keys that the table does not ask for are zero.
        destination: masked(facts.destination_words(), v4_destination, v6_destination, v4),
        source: masked(facts.source_words(), v4_source, v6_source, v4),
    })
}

#[inline(always)]
fn masked([high, low]: [u64; 2], v4: &[u64; 2], v6: &[u64; 2], is_v4: bool) -> [u64; 2] {
    // The masks are mixed and not chosen, which would make a pointer with an offset that depends on
    // the way there: the verifier grants it only with CAP_PERFMON.
    let v4_bits = black_box(u64::from(is_v4).wrapping_neg());
    let ([v4_high, v4_low], [v6_high, v6_low]) = (v4, v6);
    let high_mask = v4_high & v4_bits | v6_high & !v4_bits;
    let low_mask = v4_low & v4_bits | v6_low & !v4_bits;
    [high & high_mask, low & low_mask]
}
