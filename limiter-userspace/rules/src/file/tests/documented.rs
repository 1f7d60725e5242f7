//! The rule files of the documentation are rule files.

use super::*;
use crate::Installed;
use crate::compile::Environment;

/// The YAML blocks of the pages on rule files.
fn blocks() -> Vec<String> {
    let read = |page: &str| {
        let path = format!("{}/../../docs/{page}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    };
    let text = ["rules.md", "rules-reference.md"].map(read).concat();
    let begun = text.split("```yaml\n").skip(1);
    begun.map(|block| block.split("```").next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn the_documentation_s_files_can_be_installed() {
    let blocks = blocks();
    assert!(blocks.len() >= 4, "{}", blocks.len());
    for block in blocks {
        let file = parse(&block).unwrap_or_else(|error| panic!("{error}\n{block}"));
        let environment = Environment::of_frame(1522);
        let plan = Installed::default().plan(&file.rules, 1, 1024, &environment);
        plan.unwrap_or_else(|error| panic!("{error}\n{block}"));
    }
}
