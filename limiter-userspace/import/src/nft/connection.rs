//! Conditions on a packet's connection, as it was before address translation.

use serde_json::Value;

use super::field::{Field, shown};
use super::set::{nets, ports};
use crate::packets::{Family, Packets};

/// Adds values of a connection's field to the conditions.
pub(super) fn connection(
    field: Field,
    not: bool,
    values: &[&Value],
    packets: &mut Packets,
) -> Result<(), String> {
    let unread = || format!("its values are not read: {}", shown(values));
    let first = values.first().and_then(|value| value.as_str()).filter(|_| values.len() == 1);
    if not {
        return Err("it is for all but some connections: limiter has no such rules".to_owned());
    }
    let original = &mut packets.original;
    let twice = match (field, first) {
        (Field::Status, Some("dnat")) => std::mem::replace(&mut packets.translated, true),
        (Field::Direction, Some("original")) => std::mem::replace(&mut original.way, true),
        (Field::OriginalPort, _) => {
            let found: Option<Vec<_>> = values.iter().map(|value| ports(value)).collect();
            original.ports.replace(found.ok_or_else(unread)?).is_some()
        }
        (Field::OriginalDestination(family), _) => {
            let found: Option<Vec<Vec<_>>> = values.iter().map(|value| nets(value)).collect();
            let found = found.ok_or_else(unread)?.concat();
            if found.iter().any(|net| Family::of(net) != family) {
                return Err(unread());
            }
            original.destinations.replace(found).is_some()
        }
        _ => return Err(unread()),
    };
    if twice { Err("it has two conditions on one field".to_owned()) } else { Ok(()) }
}
