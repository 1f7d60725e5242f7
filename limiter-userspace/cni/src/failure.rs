//! Errors, as runtimes read them from standard output.

use serde_json::{Value, json};

/// Codes of errors, of which the specification defines those below 100.
pub(crate) mod code {
    /// A version of the specification that the plugin does not have.
    pub(crate) const VERSION: u32 = 1;
    /// A field of the configuration that the plugin does not have.
    pub(crate) const FIELD: u32 = 2;
    /// There is no such container.
    pub(crate) const NO_CONTAINER: u32 = 3;
    /// A variable of the environment is missing or wrong.
    pub(crate) const ENVIRONMENT: u32 = 4;
    /// Reading or writing failed.
    pub(crate) const IO: u32 = 5;
    /// The configuration is no JSON.
    pub(crate) const DECODE: u32 = 6;
    /// The configuration cannot be used.
    pub(crate) const CONFIG: u32 = 7;
    /// It may work later.
    pub(crate) const AGAIN: u32 = 11;
    /// No container can be added.
    pub(crate) const NOT_AVAILABLE: u32 = 50;
    /// The container has not the limits that it should have.
    pub(crate) const NOT_LIMITED: u32 = 100;
    /// The daemon or the kernel refused.
    pub(crate) const REFUSED: u32 = 101;
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: u32,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(code: u32, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// The error as the specification has it.
    pub(crate) fn document(&self, version: &str) -> Value {
        json!({ "cniVersion": version, "code": self.code, "msg": format!("limiter: {}", self.text) })
    }
}
