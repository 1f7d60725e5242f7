//! Comments have no examples to run: nextest runs none, so nobody would see one fail.

#![expect(clippy::unwrap_used, reason = "a test fails where its machinery does")]

use std::fs;
use std::path::Path;

/// The texts of our Rust files below a directory, without build directories.
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

/// The openings of code blocks in comments that are not plain text.
fn examples(text: &str) -> Vec<&str> {
    let fences = text.lines().filter_map(|line| {
        let line = line.trim_start();
        let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
        comment.trim_start().strip_prefix("```")
    });
    fences.step_by(2).filter(|opening| *opening != "text").collect()
}

#[test]
fn no_comment_has_an_example_to_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut texts = Vec::new();
    sources(root, &mut texts);
    assert!(texts.len() > 500);
    for text in texts {
        let examples = examples(&text);
        assert!(examples.is_empty(), "an example that nobody runs: {examples:?}");
    }
}

#[test]
fn an_example_is_found() {
    assert_eq!(examples("//! ```text\n//! a\n//! ```\n/// ```\n/// b();\n/// ```\n"), [""]);
    assert_eq!(examples("    /// ```rust\n    /// ```\n"), ["rust"]);
    assert_eq!(examples("let s = \"```\";\n"), [""; 0]);
}
