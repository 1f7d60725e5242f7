//! JSON schemas, for tests: as much of them as ours use.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails where its schema is wrong")]

use serde_json::Value;

/// Checks a document.
///
/// # Panics
///
/// On words that our schemas do not use, so that no part of a schema is passed over.
pub fn valid(schema: &Value, root: &Value, document: &Value) -> Result<(), String> {
    let Value::Object(words) = schema else {
        return if *schema == true { Ok(()) } else { Err("nothing fits".to_owned()) };
    };
    let ok = |holds: bool, word: &str| {
        if holds { Ok(()) } else { Err(format!("{word}: {schema} against {document}")) }
    };
    let fits = |schema: &Value| valid(schema, root, document).is_ok();
    let has = |field: &Value| document.get(field.as_str().unwrap()).is_some();
    for (word, value) in words {
        match word.as_str() {
            "description" | "title" | "examples" | "format" | "default" | "$schema" | "$defs"
            | "then" | "else" => {}
            "$ref" => {
                let path = value.as_str().unwrap().strip_prefix('#').unwrap();
                valid(root.pointer(path).unwrap(), root, document)?;
            }
            "type" => {
                let is = |name: &Value| match name.as_str().unwrap() {
                    "object" => document.is_object(),
                    "array" => document.is_array(),
                    "string" => document.is_string(),
                    "number" => document.is_number(),
                    "integer" => document.is_u64() || document.is_i64(),
                    "boolean" => document.is_boolean(),
                    "null" => document.is_null(),
                    other => panic!("{other}"),
                };
                ok(value.as_array().map_or_else(|| is(value), |names| names.iter().any(is)), word)?;
            }
            "enum" => ok(value.as_array().unwrap().contains(document), word)?,
            "const" => ok(value == document, word)?,
            "minimum" => ok(document.as_u64().is_none_or(|n| n >= value.as_u64().unwrap()), word)?,
            "maximum" => ok(document.as_u64().is_none_or(|n| n <= value.as_u64().unwrap()), word)?,
            "pattern" => {
                let pattern = value.as_str().unwrap();
                ok(document.as_str().is_none_or(|text| matches(pattern, text)), word)?;
            }
            "minItems" => {
                let least = value.as_u64().unwrap();
                ok(document.as_array().is_none_or(|list| list.len() as u64 >= least), word)?;
            }
            "maxItems" => {
                let most = value.as_u64().unwrap();
                ok(document.as_array().is_none_or(|list| list.len() as u64 <= most), word)?;
            }
            "minProperties" => {
                let least = value.as_u64().unwrap();
                ok(document.as_object().is_none_or(|map| map.len() as u64 >= least), word)?;
            }
            "maxProperties" => {
                let most = value.as_u64().unwrap();
                ok(document.as_object().is_none_or(|map| map.len() as u64 <= most), word)?;
            }
            "required" => {
                let all = value.as_array().unwrap().iter().all(has);
                ok(!document.is_object() || all, word)?;
            }
            "properties" => {
                for (field, schema) in value.as_object().unwrap() {
                    if let Some(inner) = document.get(field) {
                        valid(schema, root, inner)?;
                    }
                }
            }
            "additionalProperties" => {
                assert_eq!(*value, false);
                let known = words["properties"].as_object().unwrap();
                let fields = document.as_object().into_iter().flatten();
                for (field, _) in fields {
                    ok(known.contains_key(field), word)?;
                }
            }
            "items" => {
                for item in document.as_array().into_iter().flatten() {
                    valid(value, root, item)?;
                }
            }
            "anyOf" => ok(value.as_array().unwrap().iter().any(fits), word)?,
            "oneOf" => {
                let fitting = value.as_array().unwrap().iter().filter(|schema| fits(schema));
                ok(fitting.count() == 1, word)?;
            }
            "allOf" => {
                for schema in value.as_array().unwrap() {
                    valid(schema, root, document)?;
                }
            }
            "not" => ok(!fits(value), word)?,
            "if" => {
                let branch = if fits(value) { "then" } else { "else" };
                if let Some(schema) = words.get(branch) {
                    valid(schema, root, document)?;
                }
            }
            other => panic!("the test does not know {other:?}"),
        }
    }
    Ok(())
}

fn matches(pattern: &str, text: &str) -> bool {
    regex::Regex::new(pattern).unwrap().is_match(text)
}
