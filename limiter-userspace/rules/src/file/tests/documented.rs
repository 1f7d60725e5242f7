//! The rule files of the documentation are rule files, word for word.

use super::*;
use crate::Installed;
use crate::compile::Environment;

/// The YAML blocks of pages.
fn blocks<const N: usize>(pages: [&str; N]) -> Vec<String> {
    let read = |page: &str| {
        let path = format!("{}/../../docs/{page}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    };
    let text = pages.map(read).concat();
    let begun = text.split("```yaml\n").skip(1);
    begun.map(|block| block.split("```").next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn the_documentation_s_files_can_be_installed() {
    let of_packets = blocks(["rules.md", "rules-reference.md"]);
    let of_requests =
        blocks(["requests.md", "requests-reference.md", "behind-a-proxy.md", "redis.md"]);
    assert!(of_packets.len() >= 4 && of_requests.len() >= 4);
    // Those of Envoy's own configuration are for Envoy.
    for block in of_requests.iter().filter(|block| !block.contains("envoy.")) {
        requests::tests::parse(block);
    }
    for block in of_packets {
        let file = parse(&block).unwrap_or_else(|error| panic!("{error}\n{block}"));
        let environment = Environment::of_frame(1522);
        let plan = Installed::default().plan(&file.rules, 1, 1024, &environment);
        plan.unwrap_or_else(|error| panic!("{error}\n{block}"));
    }
}
