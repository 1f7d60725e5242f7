//! Parts of the JSON schema of load files that the types cannot express.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

pub(super) fn pattern(_generator: &mut SchemaGenerator) -> Schema {
    json_schema!({"enum": ["steady", "poisson", "onoff", "ramp", "flood", "stall"]})
}

/// Fields that belong to one pattern, which requires them.
pub(super) fn of_sender() -> Value {
    let of = [
        ("onoff", ["on_for", "off_for"].as_slice()),
        ("ramp", &["rate_at_end"]),
        ("stall", &["stall_from", "stall_for"]),
    ];
    let conditions = of.map(|(pattern, fields)| {
        let is = json!({"properties": {"pattern": {"const": pattern}}});
        let given: Vec<Value> = fields.iter().map(|field| json!({"required": [field]})).collect();
        json!({"if": is, "then": {"required": fields}, "else": {"not": {"anyOf": given}}})
    });
    conditions.into_iter().collect()
}
