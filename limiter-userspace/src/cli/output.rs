//! Answers as documents for programs. JSON and YAML say the same.

use serde::Serialize;

use super::args::Output;
use super::failure::Failure;

impl Output {
    /// An answer in this form; none in the form for people.
    pub(super) fn document(self, answer: &impl Serialize) -> Result<Option<String>, Failure> {
        match self {
            Self::Table => Ok(None),
            Self::Json => Ok(Some(serde_json::to_string(answer)? + "\n")),
            Self::Yaml => yaml(answer).map(Some),
        }
    }

    /// One of several answers: a line of JSON, or a YAML document after its `---`.
    pub(super) fn one_of_several(self, answer: &impl Serialize) -> Result<Option<String>, Failure> {
        let text = self.document(answer)?;
        Ok(text.map(|text| if self == Self::Yaml { format!("---\n{text}") } else { text }))
    }
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
