//! A JSON object whose text is made member by member and taken in parts: however large the document
//! is, only a part of it is in memory.

use std::io::Write as _;

use hyper::body::Bytes;
use serde::Serialize;

/// Bytes of a part; a part may be a little larger.
pub const PART: usize = 32 << 10;

/// Text that was not taken yet.
#[derive(Debug)]
pub struct Parts {
    text: Vec<u8>,
    /// True if the next item follows another one in the open object or array.
    after: bool,
}

impl Default for Parts {
    fn default() -> Self {
        Self { text: vec![b'{'], after: false }
    }
}

impl Parts {
    /// Writes a whole member.
    pub fn member(&mut self, name: &str, value: &impl Serialize) -> serde_json::Result<()> {
        self.name(name)?;
        serde_json::to_writer(&mut self.text, value)
    }

    /// Begins a member that is an array.
    pub fn open_array(&mut self, name: &str) -> serde_json::Result<()> {
        self.name(name)?;
        self.text.push(b'[');
        self.after = false;
        Ok(())
    }

    /// Writes an item of the open array.
    pub fn item(&mut self, value: &impl Serialize) -> serde_json::Result<()> {
        self.comma();
        serde_json::to_writer(&mut self.text, value)
    }

    /// Ends the open array.
    pub fn close_array(&mut self) {
        self.text.push(b']');
        self.after = true;
    }

    /// Begins a member that is a string.
    pub fn open_string(&mut self, name: &str) -> serde_json::Result<()> {
        self.name(name)?;
        self.text.push(b'"');
        Ok(())
    }

    /// Writes the next characters of the open string.
    pub fn characters(&mut self, characters: &str) -> serde_json::Result<()> {
        let quoted = serde_json::to_string(characters)?;
        let bare = quoted.strip_prefix('"').and_then(|quoted| quoted.strip_suffix('"'));
        // Writing to a `Vec` cannot fail.
        self.text.write_all(bare.unwrap_or_default().as_bytes()).map_err(serde_json::Error::io)
    }

    /// Ends the open string.
    pub fn close_string(&mut self) {
        self.text.push(b'"');
        self.after = true;
    }

    /// Ends the object.
    pub fn end(&mut self) {
        self.text.push(b'}');
    }

    /// Returns true if there is enough text for a part.
    pub const fn is_part(&self) -> bool {
        self.text.len() >= PART
    }

    /// Takes the finished text.
    pub fn take(&mut self) -> Bytes {
        std::mem::take(&mut self.text).into()
    }

    fn name(&mut self, name: &str) -> serde_json::Result<()> {
        self.comma();
        serde_json::to_writer(&mut self.text, name)?;
        self.text.push(b':');
        self.after = true;
        Ok(())
    }

    fn comma(&mut self) {
        if self.after {
            self.text.push(b',');
        }
        self.after = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_the_object() {
        let mut parts = Parts::default();
        let mut text = Vec::new();
        parts.open_array("none").unwrap();
        parts.close_array();
        parts.member("a\"b", &1).unwrap();
        parts.open_array("some").unwrap();
        for number in 0..PART {
            parts.item(&number).unwrap();
            if parts.is_part() {
                text.extend(parts.take());
            }
        }
        assert!(!text.is_empty());
        parts.close_array();
        parts.open_string("text").unwrap();
        parts.characters("x\n\"").unwrap();
        parts.characters("\u{e9}").unwrap();
        parts.close_string();
        parts.member("last", &Option::<u8>::None).unwrap();
        parts.end();
        text.extend(parts.take());
        let found: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let some: Vec<_> = (0..PART).collect();
        let text = "x\n\"\u{e9}";
        let whole = serde_json::json!(
            {"none": [], "a\"b": 1, "some": some, "text": text, "last": null}
        );
        assert_eq!(found, whole);
    }
}
