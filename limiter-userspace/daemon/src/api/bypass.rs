//! The bypass, and the end of all limits.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::words;
use crate::render::{Render, line};

/// `PUT /v1/brake`, and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Bypass {
    /// True if every packet passes.
    pub engaged: bool,
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

impl Render for Bypass {
    fn render(&self, text: &mut String) {
        text.push_str(if self.engaged {
            "limits are off: every packet passes until `limiter on`\n"
        } else {
            "limits are on\n"
        });
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
