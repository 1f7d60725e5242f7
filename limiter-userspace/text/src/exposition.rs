//! The text format of Prometheus, version 0.0.4: what `GET /metrics` answers with. A writer of our
//! own, because the format is three kinds of lines, and the values are the kernel's counters: a
//! registry of counters in this process would be a second truth.

use std::fmt::{Display, Write as _};

use crate::plain::is_plain;

/// Content type of the whole page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value that only grows, until the maps are made anew.
    Counter,
    /// A value that goes up and down.
    Gauge,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
        }
    }
}

/// The page, metric by metric.
#[derive(Debug, Default)]
pub struct Exposition(String);

impl Exposition {
    /// Begins a metric. All its samples come before the next one.
    pub fn metric(&mut self, name: &'static str, kind: Kind, help: &str) -> Samples<'_> {
        // Writing to a string cannot fail.
        let _: std::fmt::Result = writeln!(self.0, "# HELP {name} {help}");
        let _: std::fmt::Result = writeln!(self.0, "# TYPE {name} {}", kind.name());
        Samples { text: &mut self.0, name }
    }

    /// The page.
    pub fn into_text(self) -> String {
        self.0
    }
}

/// The samples of one metric.
#[derive(Debug)]
pub struct Samples<'a> {
    text: &'a mut String,
    name: &'static str,
}

impl Samples<'_> {
    /// Adds a sample. No two of a metric have the same labels. Characters that are not plain are
    /// written as `\u{1b}`, and what looks like that as `\u{5c}u{1b}`, so that two values stay two.
    pub fn add(&mut self, labels: &[(&str, &str)], value: impl Display) -> &mut Self {
        self.text.push_str(self.name);
        for (index, (label, of)) in labels.iter().enumerate() {
            self.text.push(if index == 0 { '{' } else { ',' });
            self.text.push_str(label);
            self.text.push_str("=\"");
            for (at, character) in of.char_indices() {
                match character {
                    '\\' if of.get(at..).is_some_and(|rest| rest.starts_with("\\u{")) => {
                        self.text.push_str("\\\\u{5c}");
                    }
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    plain if is_plain(plain) => self.text.push(plain),
                    other => {
                        let _: std::fmt::Result =
                            write!(self.text, "\\\\u{{{:x}}}", u32::from(other));
                    }
                }
            }
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _: std::fmt::Result = writeln!(self.text, " {value}");
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing steers the terminal of who reads the page, and no two values become one.
    #[test]
    fn what_is_not_plain_is_written_in_what_is() {
        let value = |of: &str| {
            let mut page = Exposition::default();
            page.metric("a", Kind::Gauge, "What.").add(&[("x", of)], 1);
            page.into_text().lines().last().unwrap().to_owned()
        };
        let written = r#"a{x="a\\u{1b}[2J\\u{0}\\u{202e}b\\u{d}"} 1"#;
        assert_eq!(value("a\u{1b}[2J\0\u{202e}b\r"), written);
        assert_eq!(value(r"\u{1b}"), r#"a{x="\\u{5c}u{1b}"} 1"#);
        assert_eq!(value(r"\u é"), r#"a{x="\\u é"} 1"#);
    }

    #[test]
    fn labels_are_quoted() {
        let mut page = Exposition::default();
        page.metric("a_total", Kind::Counter, "What.")
            .add(&[("x", "a\"b\\c\nd"), ("y", "")], 7)
            .add(&[], 0.5);
        let text = "# HELP a_total What.\n# TYPE a_total counter\n\
                    a_total{x=\"a\\\"b\\\\c\\nd\",y=\"\"} 7\na_total 0.5\n";
        assert_eq!(page.into_text(), text);
    }
}
