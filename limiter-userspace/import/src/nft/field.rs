//! Packet fields that nft conditions read.

use limiter_rules::model::Fact;
use serde_json::Value;

use crate::iptables::protocol_number;
use crate::packets::{ALL_BUT, Family, Packets};

/// The part of a packet that a condition examines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Source(Family),
    Destination(Family),
    /// The destination port, with a protocol if one is named.
    Port(Option<u8>),
    /// The protocol, for packets of a family if one is named.
    Protocol(Option<Family>),
    Family,
    Interface,
    State,
    Icmp(Family),
    /// A header field, for packets of a family or a protocol if one is named.
    Fact(Fact, Of),
    /// The destination of the first packet of the connection.
    OriginalDestination(Family),
    OriginalPort,
    Direction,
    /// Flags of the connection, for example that its destination was translated.
    Status,
}

/// Packets that have a header field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    All,
    Family(Family),
    Protocol(u8),
}

pub(super) fn field(expression: &Value) -> Option<Field> {
    if let Some(payload) = expression.get("payload") {
        let protocol = payload.get("protocol")?.as_str()?;
        let name = payload.get("field")?.as_str()?;
        return Some(match (protocol, name) {
            ("ip", "saddr") => Field::Source(Family::V4),
            ("ip6", "saddr") => Field::Source(Family::V6),
            ("ip", "daddr") => Field::Destination(Family::V4),
            ("ip6", "daddr") => Field::Destination(Family::V6),
            // The first IPv6 header need not be the last, so `ip6 nexthdr` is not supported.
            ("ip", "protocol") => Field::Protocol(Some(Family::V4)),
            ("th", "dport") => Field::Port(None),
            ("tcp" | "udp" | "sctp" | "dccp" | "udplite", "dport") => {
                Field::Port(protocol_number(protocol))
            }
            ("th", "sport") => Field::Fact(Fact::SourcePort, Of::All),
            ("tcp" | "udp" | "sctp" | "dccp" | "udplite", "sport") => {
                Field::Fact(Fact::SourcePort, Of::Protocol(protocol_number(protocol)?))
            }
            ("ip", "length") => Field::Fact(Fact::PacketLength, Of::Family(Family::V4)),
            ("ip", "ttl") => Field::Fact(Fact::Ttl, Of::Family(Family::V4)),
            ("ip6", "hoplimit") => Field::Fact(Fact::Ttl, Of::Family(Family::V6)),
            ("ip", "dscp") => Field::Fact(Fact::Dscp, Of::Family(Family::V4)),
            ("ip6", "dscp") => Field::Fact(Fact::Dscp, Of::Family(Family::V6)),
            ("icmp", "type") => Field::Icmp(Family::V4),
            ("icmpv6", "type") => Field::Icmp(Family::V6),
            _ => return None,
        });
    }
    if let Some(meta) = expression.get("meta") {
        return Some(match meta.get("key")?.as_str()? {
            "l4proto" => Field::Protocol(None),
            "nfproto" | "protocol" => Field::Family,
            "iifname" | "iif" => Field::Interface,
            "length" => Field::Fact(Fact::PacketLength, Of::All),
            _ => return None,
        });
    }
    let ct = expression.get("ct")?;
    let of_first = ct.get("dir").and_then(Value::as_str) == Some("original");
    Some(match (ct.get("key")?.as_str()?, of_first) {
        ("state", _) => Field::State,
        ("status", _) => Field::Status,
        ("direction", _) => Field::Direction,
        ("proto-dst", true) => Field::OriginalPort,
        ("ip daddr", true) => Field::OriginalDestination(Family::V4),
        ("ip6 daddr", true) => Field::OriginalDestination(Family::V6),
        _ => return None,
    })
}

/// Adds the condition that a field implies, independent of its value.
pub(super) fn implied(field: Field, packets: &mut Packets) -> bool {
    let protocol = match field {
        Field::Source(family)
        | Field::Destination(family)
        | Field::OriginalDestination(family)
        | Field::Protocol(Some(family))
        | Field::Fact(_, Of::Family(family)) => {
            return of_family(packets, family);
        }
        Field::Port(Some(protocol)) | Field::Fact(_, Of::Protocol(protocol)) => protocol,
        Field::Icmp(family) if !of_family(packets, family) => return false,
        Field::Icmp(Family::V4) => 1,
        Field::Icmp(Family::V6) => 58,
        Field::Port(None)
        | Field::Protocol(None)
        | Field::Family
        | Field::Interface
        | Field::Fact(_, Of::All)
        | Field::OriginalPort
        | Field::Direction
        | Field::Status
        | Field::State => return true,
    };
    of_protocols(packets, vec![protocol])
}

/// Keeps packets of a family; false if none remain.
pub(super) fn of_family(packets: &mut Packets, family: Family) -> bool {
    *packets.family.get_or_insert(family) == family
}

/// Keeps packets of some protocols; false if none remain.
pub(super) fn of_protocols(packets: &mut Packets, protocols: Vec<u8>) -> bool {
    match &mut packets.protocols {
        None => packets.protocols = Some(protocols),
        Some(known) => {
            known.retain(|known| protocols.contains(known));
            return !known.is_empty();
        }
    }
    true
}

/// The reason for a negated condition.
pub(super) fn all_but(what: &str) -> String {
    format!("it is for all but {what}: {ALL_BUT}")
}

/// Values for a message, shortened.
pub(super) fn shown(values: &[&Value]) -> String {
    let shown: Vec<String> = values.iter().take(3).map(ToString::to_string).collect();
    shown.join(", ").chars().take(100).collect()
}
