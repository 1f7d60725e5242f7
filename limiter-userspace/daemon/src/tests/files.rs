//! Rule files in a directory: which files are, and what several of them make.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::rule_files;

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
