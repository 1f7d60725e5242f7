//! Rule files in a directory: which files count, and how several are joined.

use std::fs;
use std::path::PathBuf;

use limiter_api::rules::{ApplyRules, Document};
use tempfile::TempDir;

use super::{Daemon, RULES};
use crate::rule_sets::check::check;
use crate::rule_sets::rule_files;

fn limit(value: &str) -> String {
    format!(
        "descriptors: [{{key: remote_address, value: {value}, rate_limit: {{unit: second, \
         requests_per_unit: 5}}}}]\n"
    )
}

fn directory(files: &[(&str, &str)]) -> (TempDir, Vec<PathBuf>) {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    let paths = vec![directory.path().to_owned()];
    (directory, paths)
}

fn names(paths: &[PathBuf]) -> Vec<String> {
    let documents = rule_files::read(paths).unwrap();
    let name = |name: &str| name.rsplit('/').next().unwrap().to_owned();
    documents.iter().map(|document| name(&document.name)).collect()
}

/// A command reads another one's output and names the place of a mistake; the daemon reads its
/// files again, so `-` is a file name for it.
#[test]
fn a_command_reads_standard_input_in_its_place() {
    let (_directory, mut paths) = directory(&[("a.yaml", &limit("192.0.2.1"))]);
    paths.insert(0, "-".into());
    let piped = limit("192.0.2.2");
    let read = rule_files::read_once(&paths, &mut piped.as_bytes()).unwrap();
    assert_eq!((read[0].name.as_str(), read[0].text.as_str()), ("standard input", &*piped));
    assert_eq!(rule_files::parse(&read, 1522).unwrap().rules.rules.len(), 2);
    let mistake = check(&paths, &mut "descriptor: []\n".as_bytes(), 1522, 1 << 12).errors;
    assert!(mistake[0].message.starts_with("standard input:1:1: "), "{mistake:?}");
    let latin = rule_files::read_once(&paths, &mut b"# \xe9\n".as_slice()).unwrap_err();
    assert!(latin.to_string().starts_with("standard input:1:3: "), "{latin}");
    let long = "#".repeat(16 << 20) + "\n";
    let long = rule_files::read_once(&paths, &mut long.as_bytes()).unwrap_err().to_string();
    assert_eq!(
        long,
        "standard input: the file is larger than 16 MiB: use prefixes instead of single addresses"
    );
    assert!(rule_files::read(&paths).unwrap_err().to_string().starts_with("-: cannot read"));
}

#[test]
fn a_directory_is_its_yaml_files_in_order() {
    let (_directory, paths) = directory(&[
        ("20.yaml", &limit("192.0.2.2")),
        ("10.yml", &limit("192.0.2.1")),
        ("9.yaml", "descriptors: []\n"),
        (".hidden.yaml", "not: a rule file"),
        (".#20.yaml", "not: a rule file"),
        ("20.yaml~", "not: a rule file"),
        ("#20.yaml#", "not: a rule file"),
        (".20.yaml.swp", "not: a rule file"),
        ("20.yaml.bak", "not: a rule file"),
        ("README", "not: a rule file"),
    ]);
    assert_eq!(names(&paths), ["10.yml", "20.yaml", "9.yaml"]);
    let rules = rule_files::load(&paths, 1522).unwrap().rules.rules;
    let sources: Vec<_> = rules.iter().map(|rule| rule.path.to_string()).collect();
    assert_eq!(sources, ["192.0.2.1", "192.0.2.2"]);
}

#[test]
fn links_are_followed_as_config_maps_need_it() {
    let (directory, paths) = directory(&[]);
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("..2026")).unwrap();
    fs::write(at("..2026/rules.yaml"), limit("192.0.2.1")).unwrap();
    std::os::unix::fs::symlink("..2026", at("..data")).unwrap();
    std::os::unix::fs::symlink("..data/rules.yaml", at("rules.yaml")).unwrap();
    assert_eq!(names(&paths), ["rules.yaml"]);
}

/// As `limiter check` does: all of all files, up to ten.
#[test]
fn all_mistakes_of_the_files_are_named() {
    let item = |key: &str| format!("  - {{key: {key}, rate_limit: {{rate: 1/s}}}}\n");
    let wrong = format!("descriptors:\n{}{}", item("one"), item("two"));
    let (_directory, paths) = directory(&[("a.yaml", &wrong), ("b.yaml", "domain: [\n")]);
    let error = rule_files::load(&paths, 1522).unwrap_err().to_string();
    let parts: Vec<_> = error.split("; /").collect();
    assert_eq!(parts.len(), 3, "{error}");
    assert!(parts[0].contains("/a.yaml:2:") && parts[0].contains("\"one\""), "{error}");
    assert!(parts[1].contains("/a.yaml:3:") && parts[1].contains("\"two\""), "{error}");
    assert!(parts[2].contains("/b.yaml:"), "{error}");
    let many = format!("descriptors:\n{}", item("one").repeat(13));
    let (_directory, paths) = directory(&[("a.yaml", &many)]);
    let error = rule_files::load(&paths, 1522).unwrap_err().to_string();
    assert!(error.ends_with("; and 3 more, which `limiter check` names"), "{error}");
}

#[test]
fn what_is_no_rule_file_is_named() {
    let (directory, paths) =
        directory(&[("a.yaml", "descriptors: []\n"), ("b.yaml", "domain: [\n")]);
    let error = rule_files::load(&paths, 1522).unwrap_err().to_string();
    assert!(error.contains("/b.yaml:"), "{error}");
    fs::remove_file(directory.path().join("b.yaml")).unwrap();
    fs::create_dir(directory.path().join("c.yaml")).unwrap();
    let error = rule_files::load(&paths, 1522).unwrap_err().to_string();
    assert!(
        error.contains("/c.yaml: cannot read the rule file: it is not a regular file"),
        "{error}"
    );
    let (empty, paths) = self::directory(&[(".a.yaml", "")]);
    let error = rule_files::load(&paths, 1522).unwrap_err().to_string();
    let name = empty.path().display();
    assert!(error.starts_with(&format!("{name}: no rule file is in this directory")), "{error}");
    fs::write(empty.path().join("a.yaml"), b"domain: \xff\n").unwrap();
    let error = rule_files::load(&paths, 1522).unwrap_err().to_string();
    assert!(error.ends_with("a.yaml:1:9: byte 8 is not UTF-8: save the file as UTF-8"), "{error}");
}

#[test]
fn all_files_together_are_bounded() {
    let half = "#".repeat(9 << 20);
    let (_directory, paths) = directory(&[("a.yaml", &half), ("b.yaml", &half)]);
    let error = rule_files::read(&paths).unwrap_err().to_string();
    assert!(
        error.contains("b.yaml: with this file the rule files are larger than 16 MiB"),
        "{error}"
    );
}

/// A start reads the present rule files. It reports if they differ from those last in force, until
/// rules are put in force by a command.
#[test]
fn a_start_says_that_the_rule_files_are_others_than_before() {
    let at_start = |daemon: &Daemon| daemon.service.status().unwrap().changed_before_start;
    let other = "descriptors: [{key: remote_address, rate_limit: {rate: 7/s}}]\n";
    // The first one knows of none before, and the same files are no change.
    let daemon = Daemon::start(&[]);
    assert_eq!(at_start(&daemon), None);
    let mut daemon = daemon.restart(&[]);
    assert_eq!(at_start(&daemon), None);
    // A reload is somebody's word.
    daemon.write(other);
    daemon.service.reload().unwrap();
    let mut daemon = daemon.restart(&[]);
    assert_eq!(at_start(&daemon), None);
    // A start finds an edit that was never put in force.
    daemon.write(RULES);
    daemon = daemon.restart(&[]);
    let output = at_start(&daemon).unwrap();
    let begin =
        format!("{} changed on disk since", daemon.directory.path().join("r.yaml").display());
    assert!(output.starts_with(&begin), "{output}");
    assert!(output.contains("this start took what is there"), "{output}");
    let text = daemon.service.status().unwrap();
    let mut shown = String::new();
    limiter_api::render::Render::render(&text, &mut shown);
    assert!(shown.contains("at the start") && shown.contains("changed on disk since"), "{shown}");
    // Reported by that start alone, and ended by a reload.
    daemon.service.reload().unwrap();
    assert_eq!(at_start(&daemon), None);
    daemon.write(other);
    daemon = daemon.restart(&[]);
    assert!(at_start(&daemon).is_some());
    daemon = daemon.restart(&[]);
    assert_eq!(at_start(&daemon), None);
    // Applied rules are dropped together with the files that they replaced.
    let document = Document { name: "new.yaml".into(), text: RULES.into() };
    let documents = vec![document];
    let rules = ApplyRules { documents, force: false, confirm_seconds: None, session: None };
    daemon.service.apply_rules(&rules).unwrap();
    daemon = daemon.restart(&[]);
    assert!(daemon.service.status().unwrap().applied && at_start(&daemon).is_none());
    daemon.write(&other.replace('7', "8"));
    daemon = daemon.restart(&[]);
    assert!(at_start(&daemon).is_some() && !daemon.service.status().unwrap().applied);
    // Without a note, nothing is reported.
    fs::remove_file(daemon.directory.path().join("state/taken.json")).unwrap();
    daemon.write(other);
    daemon = daemon.restart(&[]);
    assert_eq!(at_start(&daemon), None);
    // A damaged note is one of the warnings, and does not prevent the start.
    fs::write(daemon.directory.path().join("state/taken.json"), "{").unwrap();
    daemon = daemon.restart(&[]);
    let warnings = daemon.service.status().unwrap().warnings.join("\n");
    assert!(warnings.contains("taken.json") && warnings.contains("is not known"), "{warnings}");
}
