//! Texts that other programs read of the command line: documents, completions, manual pages; and
//! the help.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{CommandFactory as _, Parser as _};
use limiter_datapath::fake::Fake;
use limiter_text::plain::is_plain;
use serde_json::{Value, json};

#[cfg(feature = "replay")]
use super::explain::{capture, explained};
use super::{execute, parse};
use crate::args::Args;
use crate::output::Output;
use crate::shell::help;

const RULES: &str = "descriptors:
  - {key: remote_address, rate_limit: {unit: second, requests_per_unit: 3}}
";

/// Writes the committed help anew.
const UPDATE: &str = "LIMITER_UPDATE_HELP=1 cargo test -p limiter-cli --lib the_help";

/// All commands, those without a daemon among them.
fn commands() -> BTreeSet<String> {
    Args::command().get_subcommands().map(|command| command.get_name().to_owned()).collect()
}

fn text(line: &str) -> String {
    execute(&parse(line).unwrap(), &Fake::default()).unwrap().text
}

#[test]
fn yaml_says_what_json_says() {
    // Words that YAML would read as something else, were they not quoted.
    let words =
        ["no", "1e3", "0x1f", "12:30", "~", "", "- a", "a: b", "#", "\"", "a\nb\n", " x", "1_000"];
    // Characters that a terminal would obey.
    let steering = [
        "\u{1b}[31m",
        "\u{9b}31m",
        "a\u{202e}b",
        "\u{200b}",
        "\u{2028}",
        "\u{7f}",
        "\u{feff}x",
        "\u{e0001}",
        "\u{85}",
        "a \u{1b}[2J\nb \u{9b}c\n",
    ];
    let answer = json!({
        "words": words, "steering": steering, "most": u64::MAX, "least": i64::MIN, "rate": 0.1, "none": null, "yes": true,
        "nothing": [], "no fields": {}, "deep": [[1, [2]], {"a": [{"b": "c"}]}],
    });
    let yaml = Output::Yaml.document(&answer).unwrap().unwrap();
    assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), answer, "{yaml}");
    let json = Output::Json.document(&answer).unwrap().unwrap();
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), answer, "{json}");
    assert!(json.trim_end().chars().all(is_plain), "{json:?}");
    assert!(!yaml.chars().any(|c| c.is_control() && c != '\n'), "{yaml:?}");
    let rules = tempfile::tempdir().unwrap();
    let path = rules.path().join("r.yaml");
    fs::write(&path, RULES).unwrap();
    let pinned = rules.path().join("pinned");
    fs::create_dir(&pinned).unwrap();
    for line in [
        format!("check {}", path.display()),
        "schema".to_owned(),
        format!("off --pin-dir {}", pinned.display()),
    ] {
        let line = format!("limiter {line} --socket /nowhere/s --output");
        let json: Value = serde_json::from_str(&text(&format!("{line} json"))).unwrap();
        let yaml: Value = serde_saphyr::from_str(&text(&format!("{line} yaml"))).unwrap();
        assert_eq!(json, yaml, "{line}");
    }
}

#[cfg(feature = "replay")]
#[test]
fn an_explained_packet_is_a_yaml_document() {
    let directory = tempfile::tempdir().unwrap();
    let capture = capture(&directory);
    let json = explained(&format!("limiter explain --pcap {capture} --output json"));
    let yaml = explained(&format!("limiter explain --pcap {capture} --output yaml"));
    let yaml: Vec<Value> = yaml
        .split("---\n")
        .skip(1)
        .map(|document| serde_saphyr::from_str(document).unwrap())
        .collect();
    let json: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(json.len(), 3);
    assert_eq!(json, yaml);
}

/// The scripts ask the binary; bash, which is where the project's scripts run, is asked with a
/// daemon in `tests/tests/cli`.
#[test]
fn the_scripts_of_shells_ask_the_binary() {
    for shell in ["bash", "zsh", "fish", "elvish"] {
        let script = text(&format!("limiter completions {shell}"));
        assert!(script.contains("LIMITER_COMPLETE"), "{shell}: {script}");
    }
    let zsh = text("limiter completions zsh");
    assert!(zsh.starts_with("#compdef limiter\n"), "{zsh}");
    assert!(zsh.contains("&& _clap_dynamic_completer_limiter"), "{zsh}");
    parse("limiter completions csh").unwrap_err();
}

#[test]
fn every_command_has_a_manual_page() {
    let directory = tempfile::tempdir().unwrap();
    // A directory as on a system without manual pages of its own.
    let pages = directory.path().join("share/man/man1");
    text(&format!("limiter man --dir {}", pages.display()));
    let page = |name: &str| fs::read_to_string(pages.join(name)).unwrap();
    for command in commands() {
        let text = page(&format!("limiter-{command}.1"));
        assert!(text.contains(".TH"), "{text}");
    }
    assert_eq!(fs::read_dir(&pages).unwrap().count(), commands().len() + 1);
    assert!(page("limiter.1").contains("Exit codes"));
    assert!(text("limiter man").contains("limiter\\-run(1)"));
    let file = pages.join("limiter.1/man");
    let line = format!("limiter man --dir {}", file.display());
    let error = execute(&parse(&line).unwrap(), &Fake::default()).unwrap_err().to_string();
    assert!(error.contains(&*file.to_string_lossy()), "{error}");
}

fn help_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/help")
}

/// Each command stands in one group of the help, which fits on a screen.
#[test]
fn the_help_has_every_command_once() {
    let named: Vec<String> = help::names().map(str::to_owned).collect();
    assert_eq!(named.len(), commands().len());
    assert_eq!(named.into_iter().collect::<BTreeSet<_>>(), commands());
    let text = help::text();
    assert!(text.lines().count() <= 50, "{}", text.lines().count());
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest.is_some_and(|widest| widest <= 80), "{widest:?}");
}

/// Each command has examples, and each of them can be typed.
#[test]
fn the_examples_are_taken() {
    let of: BTreeSet<String> = help::EXAMPLES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(of, commands());
    for (name, lines) in help::EXAMPLES {
        for line in *lines {
            assert!(line.split(' ').next() == Some(name), "{line}");
            let typed = line.split(" | ").next().unwrap_or_default();
            let mut words = Vec::new();
            // A word in quotes is one word.
            for (index, part) in format!("limiter {typed}").split('\'').enumerate() {
                if index % 2 == 1 {
                    words.push(part.to_owned());
                } else {
                    words.extend(part.split_whitespace().map(str::to_owned));
                }
            }
            if let Err(error) = Args::try_parse_from(&words) {
                panic!("{line}: {error}");
            }
        }
    }
}

/// The help is an interface, too: a change of it is seen in a review.
#[test]
fn the_help_is_the_committed_one() {
    let mut command = Args::definition().term_width(100);
    command.build();
    let mut pages = vec![("limiter".to_owned(), command.render_long_help().to_string())];
    for name in commands() {
        let command = command.find_subcommand_mut(&name).unwrap();
        pages.push((format!("limiter-{name}"), command.render_long_help().to_string()));
    }
    for (_, text) in &mut pages {
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        *text = lines.join("\n") + "\n";
    }
    let directory = help_directory();
    if std::env::var_os("LIMITER_UPDATE_HELP").is_some() {
        fs::create_dir_all(&directory).unwrap();
        for entry in fs::read_dir(&directory).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        for (name, text) in &pages {
            fs::write(directory.join(format!("{name}.txt")), text).unwrap();
        }
    }
    let mut committed = BTreeSet::new();
    for entry in fs::read_dir(&directory).unwrap() {
        committed.insert(entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned());
    }
    let names: BTreeSet<String> = pages.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(committed, names, "run `{UPDATE}`");
    for (name, text) in pages {
        let committed = fs::read_to_string(directory.join(format!("{name}.txt"))).unwrap();
        assert_eq!(committed, text, "{name}: if this is meant, run `{UPDATE}`");
    }
}
