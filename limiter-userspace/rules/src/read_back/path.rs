//! The keys of a rule, by its identity in the maps.

use limiter_common::wire::{Table, TableKey, field};

use crate::compile::{RuleId, values_of_class};
use crate::model::{Fact, Part, Path, SOURCE_MASKS};

/// The path of a rule of a table. The order in which the keys were nested is not in the maps: those
/// that must have a value come first, and the source last.
pub(super) fn of(id: &RuleId, table: Option<&Table>, interface: impl Fn(u32) -> String) -> Path {
    let has = |bit| id.form.fields & bit != 0;
    let key = TableKey::default().with(id.values);
    let value = |bit| (id.given & bit != 0).then(|| key.value(bit));
    let mut parts = Vec::new();
    if has(field::INTERFACE) {
        parts.push(Part::Interface(value(field::INTERFACE).map(interface)));
    }
    if has(field::DESTINATION) {
        parts.push(Part::Destination(id.destination));
    }
    for fact in Fact::ALL.into_iter().filter(|fact| has(fact.field())) {
        let class = value(fact.field()).map(|value| u16::try_from(value).unwrap_or(u16::MAX));
        let values = class.map(|class| {
            table.map_or_else(|| class.into(), |table| values_of_class(table, fact, class))
        });
        parts.push(Part::Fact(fact, values));
    }
    if has(field::INNER) {
        parts.push(Part::Inner(id.source));
    } else if has(field::SOURCE) {
        parts.push(Part::Source(id.form.source.unwrap_or(SOURCE_MASKS), id.source));
    }
    // Stable: the source stays last among those with a value, and among those without.
    parts.sort_by_key(|part| part.value().is_none());
    Path::of(parts).going(id.form.direction())
}
