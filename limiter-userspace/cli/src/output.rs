//! Answers as documents for programs. JSON and YAML say the same.

use std::fmt::Write as _;

use clap::ValueEnum;
use limiter_text::plain::is_plain;
use serde::Serialize;

use super::failure::Failure;

/// Columns of the terminal that standard output is, or of `COLUMNS`; `None` for a pipe or a file,
/// in which lines may have any length.
pub(super) fn columns() -> Option<usize> {
    let named = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = || rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    named.or_else(|| terminal().map(|size| usize::from(size.ws_col))).filter(|columns| *columns > 0)
}

/// Forms of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// For people
    Table,
    /// For programs: the body of the daemon's answer
    Json,
    /// For programs: the same body in YAML
    Yaml,
}

impl Output {
    /// An answer in this form; `None` in the form for people.
    pub(super) fn document(self, answer: &impl Serialize) -> Result<Option<String>, Failure> {
        match self {
            Self::Table => Ok(None),
            Self::Json => Ok(Some(shown(&serde_json::to_string(answer)?) + "\n")),
            Self::Yaml => yaml(answer).map(Some),
        }
    }

    /// One of several answers: a line of JSON, or a YAML document after its `---`.
    pub(super) fn one_of_several(self, answer: &impl Serialize) -> Result<Option<String>, Failure> {
        let text = self.document(answer)?;
        Ok(text.map(|text| if self == Self::Yaml { format!("---\n{text}") } else { text }))
    }
}

/// The same JSON, with nothing in its strings that a terminal would obey. Outside of strings, JSON
/// has only plain characters and line breaks.
pub(super) fn shown(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        if is_plain(c) || c == '\n' {
            shown.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a `String` cannot fail.
                let _: std::fmt::Result = write!(shown, "\\u{unit:04x}");
            }
        }
    }
    shown
}

/// From the JSON value, so that both have the same types and names.
fn yaml(answer: &impl Serialize) -> Result<String, Failure> {
    let value = serde_json::to_value(answer)?;
    let mut text = serde_saphyr::to_string(&value)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}
