//! Header fields for which rule files have keys.

use limiter_rules::model::Fact;
use serde_json::Value;

use super::field::{all_but, shown};
use super::set::ports;
use crate::packets::Packets;

/// Adds values of a key to the conditions.
pub(super) fn numbers(
    fact: Fact,
    not: bool,
    values: &[&Value],
    packets: &mut Packets,
) -> Result<(), String> {
    let found: Option<Vec<_>> = values.iter().map(|value| number(fact, value)).collect();
    let mut found = found.ok_or_else(|| format!("its values are not read: {}", shown(values)))?;
    if not {
        let [(low, high)] = found.as_slice() else { return Err(all_but("these values")) };
        let (low, high, most) = (*low, *high, fact.most().unwrap_or(u16::MAX));
        let below = low.checked_sub(1).map(|end| (0, end));
        let above = (high < most).then(|| (high + 1, most));
        found = below.into_iter().chain(above).collect();
    }
    if more(packets, fact, found) {
        Ok(())
    } else {
        Err("it has two conditions on one field, or one that no packet meets".to_owned())
    }
}

/// Adds values of a key that rule files have; false if it already has values, or if there are none.
pub(super) fn more(packets: &mut Packets, fact: Fact, ranges: Vec<(u16, u16)>) -> bool {
    !ranges.is_empty() && packets.facts.insert(fact, ranges).is_none()
}

/// The range of a comparison: `< 5` is 0 to 4.
pub(super) fn compared(op: &str, value: u64, most: u16) -> Option<(u16, u16)> {
    let value = u16::try_from(value).ok().filter(|value| *value <= most)?;
    match op {
        "<" => Some((0, value.checked_sub(1)?)),
        "<=" => Some((0, value)),
        ">" => Some((value.checked_add(1).filter(|low| *low <= most)?, most)),
        ">=" => Some((value, most)),
        _ => None,
    }
}

/// Reads a number, a name or a range.
fn number(fact: Fact, value: &Value) -> Option<(u16, u16)> {
    let range = match value.as_str() {
        Some(name) => fact.read(name).ok().map(|number| (number, number)),
        None => ports(value),
    };
    range.filter(|(_, high)| fact.most().is_none_or(|most| *high <= most))
}
