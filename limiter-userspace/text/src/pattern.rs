//! Shell patterns of names of interfaces.

use std::fmt;

/// A shell pattern of names of interfaces: `*` stands for any characters or none, `?` for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// Parses a pattern; `None` if the word has neither `*` nor `?` and so is a name.
    pub fn of(word: &str) -> Option<Self> {
        word.contains(['*', '?']).then(|| Self(word.to_owned()))
    }

    /// True if the whole name matches.
    pub fn matches(&self, name: &str) -> bool {
        let (mut pattern, mut rest) = (self.0.chars(), name.chars());
        // Where to continue if the last star takes one more character.
        let mut again = None;
        loop {
            let (before, at) = (pattern.clone(), rest.clone());
            match (pattern.next(), rest.next()) {
                (Some('*'), _) => {
                    rest = at;
                    again = Some((before, rest.clone()));
                    if pattern.as_str().is_empty() {
                        return true;
                    }
                }
                (Some('?'), Some(_)) => {}
                (Some(wanted), Some(found)) if wanted == found => {}
                (None, None) => return true,
                _ => {
                    let Some((star, mut after)) = again.take() else { return false };
                    if after.next().is_none() {
                        return false;
                    }
                    (pattern, rest) = (star, after);
                }
            }
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tries every way of dividing the name: slow but certain.
    fn all_ways(pattern: &[u8], name: &[u8]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((b'*', after)) => (0..=name.len()).any(|at| all_ways(after, &name[at..])),
            Some((b'?', after)) => name.split_first().is_some_and(|(_, n)| all_ways(after, n)),
            Some((letter, after)) => {
                name.split_first().is_some_and(|(first, n)| first == letter && all_ways(after, n))
            }
        }
    }

    /// All texts of up to so many of these letters.
    fn texts(letters: &[char], most: u32) -> Vec<String> {
        let mut all = vec![String::new()];
        let mut last = all.clone();
        for _ in 0..most {
            let longer = |text: &String| letters.iter().map(|l| format!("{text}{l}")).collect();
            last = last.iter().flat_map::<Vec<String>, _>(longer).collect();
            all.extend(last.iter().cloned());
        }
        all
    }

    #[test]
    fn patterns_match_as_a_search_of_all_ways_does() {
        let mut seen = [0, 0];
        let names = texts(&['a', 'b'], 5);
        for text in texts(&['a', 'b', '*', '?'], 5) {
            let Some(pattern) = Pattern::of(&text) else { continue };
            for name in &names {
                let expected = all_ways(text.as_bytes(), name.as_bytes());
                assert_eq!(pattern.matches(name), expected, "{text} {name}");
                seen[usize::from(expected)] += 1;
            }
        }
        assert!(seen.iter().all(|count| *count > 1_000), "{seen:?}");
    }
}
