//! The JSON schema of rule files, for editors, made from their [shape](super::shape).
//!
//! The checks refuse all that the schema refuses, and more. The words are the checks' own.

pub(super) mod fields;

use serde_json::Value;

use super::shape::File;
use crate::dialect::Dialect;

/// The schema of a dialect, of the draft 2020-12.
pub fn schema(dialect: Dialect) -> Value {
    dialect.within(|| schemars::schema_for!(File).to_value())
}
