//! Large rule files, in the shapes in which they come.

use std::fmt::Write as _;

/// How a rule file has its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One rule for a list of sources.
    Listed,
    /// A rule for each source.
    Sources,
    /// A rule for each source, with a name of its own.
    Named,
    /// A rule for each source, with a name in quotes.
    Quoted,
    /// A rule for each source, on a port.
    Keyed,
}

impl Shape {
    pub(crate) const ALL: [Self; 5] =
        [Self::Listed, Self::Sources, Self::Named, Self::Quoted, Self::Keyed];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Listed => "one rule with a list",
            Self::Sources => "a rule for each source",
            Self::Named => "a rule with a name for each source",
            Self::Quoted => "a rule with a name in quotes for each source",
            Self::Keyed => "a rule for each source on a port",
        }
    }
}

/// A rule file with so many limits, of `rate` a second.
pub(crate) fn file(shape: Shape, count: u32, rate: u32) -> String {
    let limit = |name: &str| {
        format!("rate_limit: {{{name}unit: second, requests_per_unit: {rate}, burst: 5}}")
    };
    let sources = (0..count).map(|number| {
        let [_, a, b, c] = number.to_be_bytes();
        format!("10.{a}.{b}.{c}")
    });
    if shape == Shape::Listed {
        let sources: Vec<String> = sources.collect();
        let sources = sources.join(", ");
        return format!(
            "descriptors:\n  - {{key: remote_address, value: [{sources}], {}}}\n",
            limit("")
        );
    }
    let mut text = String::from("descriptors:\n");
    for source in sources {
        let name = match shape {
            Shape::Named => format!("name: of-{source}, "),
            Shape::Quoted => format!("name: 'of-{source}', "),
            Shape::Listed | Shape::Sources | Shape::Keyed => String::new(),
        };
        let source = format!("key: remote_address, value: {source}, {}", limit(&name));
        // Writing to a `String` cannot fail.
        let _infallible = if shape == Shape::Keyed {
            writeln!(text, "  - {{key: destination_port, value: 22, descriptors: [{{{source}}}]}}")
        } else {
            writeln!(text, "  - {{{source}}}")
        };
    }
    text
}
