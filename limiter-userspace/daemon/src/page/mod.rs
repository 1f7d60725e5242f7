//! The page for a browser: one text, made of the files beside this one, and what it may do.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};

/// The frame of the page. `/* style */` and `/* script */` stand for the rest.
const FRAME: &str = include_str!("page.html");

/// The style, part by part.
const STYLES: [&str; 2] = [include_str!("style/page.css"), include_str!("style/parts.css")];

/// The script, part by part, in the order of use: one module, whose parts see each other.
const SCRIPTS: [&str; 16] = [
    include_str!("script/text.js"),
    include_str!("script/shell.js"),
    include_str!("script/element.js"),
    include_str!("script/link.js"),
    include_str!("script/search.js"),
    include_str!("script/history.js"),
    include_str!("script/chart.js"),
    include_str!("script/state.js"),
    include_str!("script/sources.js"),
    include_str!("script/source.js"),
    include_str!("script/rules.js"),
    include_str!("script/interfaces.js"),
    include_str!("script/requests.js"),
    include_str!("script/events.js"),
    include_str!("script/tune.js"),
    include_str!("script/main.js"),
];

/// The page and its content security policy.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) text: String,
    /// The policy: the one style and the one script, by their hashes, and requests to the
    /// daemon that served the page. Nothing else is loaded, sent, framed or run.
    pub(super) policy: String,
}

/// The page, made when somebody first asks for it.
pub(super) static PAGE: LazyLock<Page> = LazyLock::new(|| {
    let (style, script) = (short(&STYLES.concat()), short(&SCRIPTS.concat()));
    let policy = format!(
        "default-src 'none'; style-src {}; script-src {}; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        hash(&style),
        hash(&script),
    );
    let text = FRAME.replace("/* style */", &style).replace("/* script */", &script);
    Page { text, policy }
});

/// The text without indents, comments that have lines of their own, and empty lines: a third of it.
/// No text in the files goes over several lines.
fn short(text: &str) -> String {
    let comment =
        |line: &&str| line.starts_with("//") || (line.starts_with("/*") && line.ends_with("*/"));
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !comment(line));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Source expression of a policy for an element with this text.
fn hash(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(digest(&SHA256, text.as_bytes())))
}
