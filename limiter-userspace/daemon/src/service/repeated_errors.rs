//! Failures that repeat.

use std::collections::BTreeMap;

use crate::error::ServiceError;

/// Steps that fail at present, by name. Each is reported when it begins to fail, when its error
/// changes, and when it works again.
#[derive(Debug, Default)]
pub(crate) struct RepeatedErrors(BTreeMap<&'static str, String>);

impl RepeatedErrors {
    /// Steps that fail at present, with the reason, for `limiter status`.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(what, error)| format!("it is not possible to {what}: {error}"))
    }

    pub(crate) fn note(&mut self, what: &'static str, done: &Result<(), ServiceError>) {
        match done {
            Ok(()) => {
                if self.0.remove(what).is_some() {
                    tracing::warn!("it is possible again to {what}");
                }
            }
            Err(error) => {
                let error = error.to_string();
                if self.0.get(what) != Some(&error) {
                    tracing::error!(
                        "it is not possible to {what}, and tried again every second: {error}"
                    );
                    self.0.insert(what, error);
                }
            }
        }
    }
}
