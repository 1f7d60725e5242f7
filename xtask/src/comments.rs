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
    use std::path::Path;

    use super::*;

    /// Files of Rust below a directory, but for what is built or not ours.
    fn sources(directory: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    sources(&path, found);
                }
            } else if path.extension().is_some_and(|of| of == "rs") {
                found.push(fs::read_to_string(&path).unwrap());
            }
        }
    }

    /// Nextest runs no examples of comments, so there are none: a block in a comment is text.
    #[test]
    fn no_comment_has_an_example_to_run() {
        let mut texts = Vec::new();
        sources(&workspace::root().unwrap(), &mut texts);
        assert!(texts.len() > 500);
        for text in texts {
            let fences = text.lines().filter_map(|line| {
                let line = line.trim_start();
                let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
                comment.trim_start().strip_prefix("```")
            });
            for opening in fences.step_by(2) {
                assert!(opening == "text", "an example that nobody runs: ```{opening}");
            }
        }
    }

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
