//! The bypass, and the end of all limits.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::rules::Session;
use super::status::neighbours::ThenProgram;
use super::words;
use crate::render::{Render, line};

/// `PUT /v1/bypass`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Bypass {
    /// True if limiter is to let every packet pass.
    pub engaged: bool,
    /// True if the limits may come in force although they may drop packets of the session.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// The SSH session of anybody who asks, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
}

/// The answer to `PUT /v1/bypass`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BypassNow {
    /// True if limiter lets every packet pass.
    pub engaged: bool,
    /// The XDP program of somebody else that goes on with the packets that pass, and may drop them,
    /// if there is one.
    #[serde(default)]
    pub then: Option<ThenProgram>,
}

/// The query of `POST /v1/detach`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct AskDetach {
    /// The one interface that is to be free; everything, when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<words::InterfaceName>)]
    pub interface: Option<String>,
}

/// The answer to `POST /v1/detach`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Detached {
    /// Interfaces that are free now.
    pub interfaces: Vec<String>,
    /// True if only these are, and maps, rules and the daemon stay.
    #[serde(default)]
    pub others_stay: bool,
}

impl Render for BypassNow {
    fn render(&self, text: &mut String) {
        match (self.engaged, &self.then) {
            (false, _) => text.push_str("limits are on\n"),
            (true, None) => {
                text.push_str("limits are off: every packet passes until `limiter on`\n");
            }
            (true, Some(then)) => line(
                text,
                format_args!(
                    "limits are off: limiter lets every packet pass until `limiter on`; {}, which \
                     may drop it",
                    then.goes_on()
                ),
            ),
        }
    }
}

impl Render for Detached {
    fn render(&self, text: &mut String) {
        if self.interfaces.is_empty() {
            text.push_str("detached\n");
        } else {
            line(text, format_args!("detached from {}", self.interfaces.join(", ")));
        }
        if self.others_stay {
            text.push_str(
                "everything else stays; a start of the daemon that names the interface limits it \
                 again\n",
            );
        }
    }
}
