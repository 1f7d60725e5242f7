//! Conditions of nft: `{"match": {"op": ..., "left": ..., "right": ...}}`.

use limiter_common::header::TCP;
use serde_json::Value;

use super::concat::concat;
use super::connection::connection;
use super::field::{Field, all_but, field, implied, of_family, of_protocols, shown};
use super::flags::opens;
use super::number::{compared, more, numbers};
use super::objects::Objects;
use super::set::{Set, nets, ports};
use crate::iptables::{icmp_message, protocol_number, state_bits};
use crate::packets::{Family, Packets, state};

/// Reads a condition into `packets`. Returns the times of the elements of a set of sources.
pub(super) fn condition(
    objects: &Objects<'_>,
    table: &str,
    body: &Value,
    packets: &mut Packets,
) -> Vec<Option<u64>> {
    let (left, right) = (body.get("left"), body.get("right"));
    let op = body.get("op").and_then(Value::as_str).unwrap_or_default();
    let (Some(left), Some(right)) = (left, right) else {
        packets.lacks("a condition cannot be read");
        return Vec::new();
    };
    if opens(left, op, right) {
        if of_protocols(packets, vec![TCP]) {
            packets.opens = true;
        } else {
            packets.lacks("its protocols exclude each other");
        }
        return Vec::new();
    }
    if let Some(fields) = left.get("concat").and_then(Value::as_array) {
        concat(fields, op, right, packets);
        return Vec::new();
    }
    let Some(field) = field(left) else {
        packets.lacks(format!("limiter has no condition as {left}"));
        return Vec::new();
    };
    if let (Field::Fact(fact, _), Some(value)) = (field, right.as_u64())
        && let Some(range) = compared(op, value, fact.most().unwrap_or(u16::MAX))
    {
        if !implied(field, packets) || !more(packets, fact, vec![range]) {
            packets.lacks("it has two conditions on one field");
        }
        return Vec::new();
    }
    let not = match op {
        "==" | "in" | "" => false,
        "!=" => true,
        _ => {
            packets.lacks(format!("limiter has no condition with {op:?}"));
            return Vec::new();
        }
    };
    let known;
    let set = match right {
        Value::String(name) if name.starts_with('@') => {
            let name = name.trim_start_matches('@').to_owned();
            if objects.filled.contains_key(&(table.to_owned(), name.clone())) {
                packets.lacks_limit(format!(
                    "rules fill the set {name}: that is a ban, as in `action: {{ban: ...}}`"
                ));
                return Vec::new();
            }
            let Some(set) = objects.sets.get(&(table.to_owned(), name.clone())) else {
                packets.lacks(format!("the set {name} is not in the text"));
                return Vec::new();
            };
            set
        }
        Value::Object(object) if object.contains_key("set") => {
            known = Set::anonymous(object.get("set").unwrap_or(&Value::Null));
            &known
        }
        value => {
            known = Set::anonymous(value);
            &known
        }
    };
    if set.has_limits() {
        packets.lacks_limit("elements of its set have limits of their own");
        return Vec::new();
    }
    let Some(values) = set.values() else {
        packets.lacks("a set has more elements than are read");
        return Vec::new();
    };
    if values.is_empty() {
        packets.lacks("its set has no elements now");
        return Vec::new();
    }
    let values_only: Vec<&Value> = values.iter().map(|(value, _)| *value).collect();
    if let Err(reason) = apply(field, not, &values_only, packets) {
        packets.lacks(reason);
        return Vec::new();
    }
    let times: Vec<Option<u64>> = values.iter().map(|(_, time)| *time).collect();
    // A range becomes several prefixes, which repeat its time.
    match field {
        Field::Source(_) if !not && times.iter().any(Option::is_some) => {
            let each =
                values.iter().map(|(value, time)| (nets(value).map_or(0, |n| n.len()), *time));
            each.flat_map(|(count, time)| std::iter::repeat_n(time, count)).collect()
        }
        _ => {
            if times.iter().any(Option::is_some) {
                packets.lacks("its set has elements for a time, and a rule here would keep them");
            }
            Vec::new()
        }
    }
}

/// Adds the values of a field to the conditions.
pub(super) fn apply(
    field: Field,
    not: bool,
    values: &[&Value],
    packets: &mut Packets,
) -> Result<(), String> {
    let unread = || format!("its values are not read: {}", shown(values));
    if !implied(field, packets) {
        return Err("its protocols or families exclude each other".to_owned());
    }
    let twice = || Err("it has two conditions on one field".to_owned());
    match field {
        Field::Source(family) | Field::Destination(family) => {
            let found: Option<Vec<Vec<_>>> = values.iter().map(|value| nets(value)).collect();
            let found = found.ok_or_else(unread)?.concat();
            if found.iter().any(|net| Family::of(net) != family) {
                return Err(unread());
            }
            match (field, not) {
                (Field::Source(_), true) => packets.not_sources.extend(found),
                (_, true) => return Err(all_but("destinations")),
                (Field::Source(_), false) if packets.sources.is_some() => return twice(),
                (Field::Source(_), false) => packets.sources = Some(found),
                (_, false) if packets.destinations.is_some() => return twice(),
                (_, false) => packets.destinations = Some(found),
            }
        }
        Field::Fact(fact, _) => numbers(fact, not, values, packets)?,
        Field::Status | Field::Direction | Field::OriginalPort | Field::OriginalDestination(_) => {
            connection(field, not, values, packets)?;
        }
        _ if not && field != Field::State && field != Field::Interface => {
            return Err(all_but("these values"));
        }
        Field::Port(_) => {
            let found: Option<Vec<_>> = values.iter().map(|value| ports(value)).collect();
            if packets.ports.is_some() {
                return twice();
            }
            packets.ports = Some(found.ok_or_else(unread)?);
        }
        Field::Protocol(_) => {
            let number = |value: &&Value| match value {
                Value::String(name) => protocol_number(name).filter(|number| *number > 0),
                value => value.as_u64().and_then(|number| u8::try_from(number).ok()),
            };
            let found: Option<Vec<u8>> = values.iter().map(number).collect();
            if !of_protocols(packets, found.ok_or_else(unread)?) {
                return Err("its protocols exclude each other".to_owned());
            }
        }
        Field::Family => match values {
            [Value::String(name)] => {
                let family = match name.as_str() {
                    "ipv4" | "ip" => Family::V4,
                    "ipv6" | "ip6" => Family::V6,
                    _ => return Err(unread()),
                };
                if !of_family(packets, family) {
                    return Err("its families exclude each other".to_owned());
                }
            }
            _ => return Err(unread()),
        },
        Field::Interface => interfaces(not, values, packets)?,
        Field::Icmp(family) => {
            let message = |value: &&Value| match value {
                Value::String(name) => icmp_name(name, family),
                value => {
                    let kind = value.as_u64().and_then(|kind| u8::try_from(kind).ok())?;
                    icmp_message(&kind.to_string(), family)
                }
            };
            let found: Option<Vec<u8>> = values.iter().map(message).collect();
            if packets.icmp.is_some() {
                return twice();
            }
            packets.icmp = Some(found.ok_or_else(unread)?);
        }
        Field::State => {
            let names: Option<Vec<&str>> = values.iter().map(|value| value.as_str()).collect();
            let names = names.ok_or_else(unread)?;
            if let Some(bits) = state_bits(&names, packets) {
                let bits = if not { state::ALL & !bits } else { bits };
                let both = packets.states.unwrap_or(state::ALL) & bits;
                if both == 0 {
                    return Err("its states exclude each other".to_owned());
                }
                packets.states = Some(both);
            }
        }
    }
    Ok(())
}

fn interfaces(not: bool, values: &[&Value], packets: &mut Packets) -> Result<(), String> {
    let names: Option<Vec<&str>> = values.iter().map(|value| value.as_str()).collect();
    if packets.interfaces.is_some() {
        return Err("it has two conditions on the interface".to_owned());
    }
    match names.as_deref() {
        // limiter is never attached to lo.
        Some(["lo"]) if not => Ok(()),
        Some(names) if !not && !names.iter().any(|name| name.contains('*')) => {
            packets.interfaces = Some(names.iter().map(|name| (*name).to_owned()).collect());
            Ok(())
        }
        _ => {
            Err("its interfaces are a pattern, or all but some: limiter has their names".to_owned())
        }
    }
}

/// nft's names of messages that have other names in rule files.
fn icmp_name(name: &str, family: Family) -> Option<u8> {
    let name = match name {
        "nd-neighbor-solicit" => "neighbour-solicitation",
        "nd-neighbor-advert" => "neighbour-advertisement",
        "nd-router-solicit" => "router-solicitation",
        "nd-router-advert" => "router-advertisement",
        "nd-redirect" => "redirect",
        "mld-listener-query" => "multicast-listener-query",
        "mld-listener-report" => "multicast-listener-report",
        "mld-listener-done" | "mld-listener-reduction" => "multicast-listener-done",
        "mld2-listener-report" => "multicast-listener-report-v2",
        other => other,
    };
    icmp_message(name, family)
}
