//! The interfaces that a start should limit: by name, and by shell patterns of names.

use limiter_text::pattern::Pattern;

/// The interfaces that a start should limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Interfaces by name: each of them must exist.
    pub names: Vec<String>,
    /// Interfaces whose names match, including later ones; never the loopback.
    pub patterns: Vec<Pattern>,
}

impl Wanted {
    /// Parses words into names and patterns.
    pub fn of(words: &[String]) -> Self {
        let mut wanted = Self::default();
        for word in words {
            match Pattern::of(word) {
                Some(pattern) => wanted.patterns.push(pattern),
                None => wanted.names.push(word.clone()),
            }
        }
        wanted
    }

    /// True if a name matches a pattern.
    pub fn matches(&self, name: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_without_a_wildcard_are_names() {
        let words = ["eth0", "veth*", "vnet?", "a.b-c"].map(str::to_owned);
        let wanted = Wanted::of(&words);
        assert_eq!(wanted.names, ["eth0", "a.b-c"]);
        let patterns: Vec<_> = wanted.patterns.iter().map(ToString::to_string).collect();
        assert_eq!(patterns, ["veth*", "vnet?"]);
        assert!(wanted.matches("veth") && wanted.matches("vnet7"));
        assert!(!wanted.matches("eth0") && !wanted.matches("vnet") && !wanted.matches("vnet10"));
    }
}
