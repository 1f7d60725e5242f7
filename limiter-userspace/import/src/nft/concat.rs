//! nft conditions on several fields at once, such as an address and a port.

use serde_json::Value;

use super::condition::apply;
use super::field::field;
use crate::packets::Packets;

/// Adds a set of concatenated rows to the conditions: for each field, its values in all rows.
/// Several rows match less than that, so they are rejected.
pub(super) fn concat(fields: &[Value], op: &str, right: &Value, packets: &mut Packets) {
    let plain = matches!(op, "==" | "in" | "");
    let rows = match right.get("set") {
        Some(Value::Array(rows)) => rows.iter().collect(),
        _ => vec![right],
    };
    let rows: Option<Vec<&Vec<Value>>> =
        rows.into_iter().map(|row| row.get("concat").and_then(Value::as_array)).collect();
    let fits = |rows: &Vec<&Vec<Value>>| {
        plain && !rows.is_empty() && rows.iter().all(|row| row.len() == fields.len())
    };
    let Some(rows) = rows.filter(fits) else {
        return packets.lacks("a condition on several fields at once, of this shape, is not read");
    };
    if rows.len() > 1 {
        packets.lacks("it asks for several fields at once: write a rule for each row by hand");
    }
    for (at, part) in fields.iter().enumerate() {
        let Some(field) = field(part) else {
            packets.lacks(format!("limiter has no condition as {part}"));
            continue;
        };
        let values: Vec<&Value> = rows.iter().filter_map(|row| row.get(at)).collect();
        if let Err(reason) = apply(field, false, &values, packets) {
            packets.lacks(reason);
        }
    }
}
