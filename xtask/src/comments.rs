//! The first words of comments: a comment begins with the name of the thing that it is about.

use std::fs;

use anyhow::Result;

use crate::{process, workspace};

/// Words that no line of a comment begins with: their noun is somewhere else, or is not there.
const WORDS: [&str; 13] = [
    "As above",
    "As before",
    "It",
    "Its",
    "The same",
    "Those",
    "What",
    "Where",
    "Whether",
    "Which",
    "Who",
    "Whoever",
    "Whose",
];

/// Names the lines of comments that begin with one of [`WORDS`]; true if there is none.
pub(crate) fn check() -> Result<bool> {
    let root = workspace::root()?;
    let mut git = process::command("git");
    git.args(["ls-files", "*.rs"]).current_dir(&root);
    let mut good = true;
    for name in process::output(&mut git)?.lines() {
        let Ok(text) = fs::read_to_string(root.join(name)) else { continue };
        for (line, word) in found(&text) {
            println!("{name}:{line}: the comment begins with \"{word}\": say what the thing is");
            good = false;
        }
    }
    Ok(good)
}

/// Numbers of the lines of comments that begin with one of [`WORDS`], and the word.
fn found(code: &str) -> Vec<(usize, &'static str)> {
    (1..).zip(code.lines()).filter_map(|(number, line)| Some((number, first(line)?))).collect()
}

/// The one of [`WORDS`] that the comment in a line begins with. A comment behind code is not read.
fn first(line: &str) -> Option<&'static str> {
    let comment = line.trim_start().strip_prefix("//")?.trim_start_matches(['/', '!']).trim_start();
    let begins = |word: &&str| {
        let rest = comment.strip_prefix(*word);
        rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    WORDS.into_iter().find(begins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_found_in_each_kind_of_comment() {
        for word in WORDS {
            for mark in ["//", "///", "//!"] {
                assert_eq!(first(&format!("    {mark} {word} is here.")), Some(word), "{mark}");
            }
            assert_eq!(first(&format!("/// {word}.")), Some(word));
        }
    }

    #[test]
    fn other_lines_are_not() {
        for line in [
            "/// The bucket of a source. It is full.",
            "/// Items, Whatever, Wholly, Whichever.",
            "/// The sameness",
            "let it = 1; // It is one.",
            "What",
            "///",
            "",
        ] {
            assert_eq!(first(line), None, "{line}");
        }
    }

    #[test]
    fn lines_have_numbers() {
        let code = "//! Things.\n//!\n//! Which are these?\n\n/// Its size.\nstruct Thing;\n";
        assert_eq!(found(code), [(3, "Which"), (5, "Its")]);
    }
}
