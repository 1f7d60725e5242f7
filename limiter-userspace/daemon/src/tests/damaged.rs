//! Damaged files in the state directory, and other things under their names: the rule files stay in
//! force, nothing blocks, and every loss is reported.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use limiter_api::rules::{ApplyRules, Document};

use super::*;
use crate::lists::ListStore;
use crate::rule_sets::limit_ends;

const FILE_RULES: [&str; 2] = ["every source 100/s file", "192.0.2.0/24 1000/s file"];

/// Contents that a file may have instead: cut, emptied, of other things, and with single bits
/// flipped.
fn damaged(whole: &[u8]) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = vec![
        Vec::new(),
        whole[..whole.len() / 2].to_vec(),
        vec![0; whole.len()],
        b"[".repeat(100_000),
        [whole, whole].concat(),
        vec![0xff; 64],
    ];
    // A flip in the content: a flip in the checksum loses nothing either, but may be harmless.
    let content = whole.windows(3).position(|at| at == b"\n# ").unwrap();
    all.extend((0..content * 8).step_by(13).map(|bit| {
        let mut flipped = whole.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        flipped
    }));
    all
}

impl Daemon {
    fn in_state(&self, name: &str) -> PathBuf {
        self.directory.path().join("state").join(name)
    }

    /// Warnings in `limiter status` that name a file.
    fn about(&self, file: &Path) -> Vec<String> {
        let file = file.display().to_string();
        let warnings = self.service.status().unwrap().warnings;
        warnings.into_iter().filter(|warning| warning.starts_with(&file)).collect()
    }
}

fn applied(daemon: &mut Daemon) {
    let text = "descriptors: [{key: remote_address, rate_limit: {rate: 7/s}}]".to_owned();
    let documents = vec![Document { name: "a.yaml".to_owned(), text }];
    let rules = ApplyRules { documents, force: true, confirm_seconds: None, session: None };
    daemon.service.apply_rules(&rules).unwrap();
}

/// For each file and each kind of damage, the rule files are in force, a copy is kept, and `status`
/// reports it until the copy is removed.
#[test]
fn a_damaged_file_leaves_the_rule_files_and_is_reported() {
    for name in ["edits.json", "applied.json"] {
        let mut daemon = Daemon::start(&[]);
        if name == "edits.json" {
            daemon.set("203.0.113.7", "5/s", None).unwrap();
        } else {
            applied(&mut daemon);
        }
        let (path, copy) = (daemon.in_state(name), daemon.in_state(&format!("{name}.broken")));
        let whole = fs::read(&path).unwrap();
        let with_it = daemon.rules();
        assert_ne!(with_it, FILE_RULES);
        daemon = daemon.restart(&[]);
        assert_eq!((daemon.rules(), daemon.about(&path)), (with_it, vec![]), "{name}");
        for content in damaged(&whole) {
            fs::write(&path, &content).unwrap();
            daemon = daemon.restart(&[]);
            let what = String::from_utf8_lossy(&content[..content.len().min(60)]).into_owned();
            assert_eq!(daemon.rules(), FILE_RULES, "{name}: {what}");
            let output = daemon.about(&path);
            assert!(output.len() == 1 && output[0].contains("not in force"), "{what}: {output:?}");
            assert!(output[0].contains(&copy.display().to_string()), "{output:?}");
            assert_eq!(fs::read(&copy).unwrap(), content, "{name}: {what}");
            fs::remove_file(&copy).unwrap();
            assert_eq!(daemon.about(&path), [""; 0]);
        }
        // A version before wrote no checksum.
        let content = whole.windows(3).position(|at| at == b"\n# ").unwrap();
        fs::write(&path, &whole[..content]).unwrap();
        assert_ne!(daemon.restart(&[]).rules(), FILE_RULES, "{name}");
    }
}

/// A name that is not a regular file is an error at once, which gives the path.
#[test]
fn what_is_no_file_is_an_error_with_its_path() {
    let daemon = Daemon::start(&[]);
    for name in ["edits.json", "applied.json", "ends.json", "lists.json", "lists.journal", "lock"] {
        for kind in ["pipe", "loop", "device", "directory"] {
            let other = tempfile::tempdir().unwrap();
            let path = other.path().join(name);
            match kind {
                "pipe" => {
                    let fifo = rustix::fs::FileType::Fifo;
                    rustix::fs::mknodat(rustix::fs::CWD, &path, fifo, 0o600.into(), 0).unwrap();
                }
                "loop" => symlink(&path, &path).unwrap(),
                "device" => symlink("/dev/zero", &path).unwrap(),
                _ => fs::create_dir(&path).unwrap(),
            }
            let opened = StateDir::open(other.path()).and_then(|state| {
                let damages = &mut Vec::new();
                state.read_edits(1522, damages)?;
                state.read_applied(damages)?;
                limit_ends::load(&state, &std::collections::BTreeMap::new(), damages)?;
                assert!(damages.is_empty(), "{name} {kind}: {damages:?}");
                Ok(state)
            });
            let error = match opened {
                Err(error) => error.to_string(),
                Ok(state) => {
                    let fake = Fake::default();
                    fake.state().wall = daemon.fake.state().wall;
                    ListStore::open(&mut *fake.open_now(), &state, &[]).unwrap_err().to_string()
                }
            };
            assert!(error.contains(&path.display().to_string()), "{name} {kind}: {error}");
        }
    }
}

/// An emptied file of the lists contains no entries: that is reported like other damage.
#[test]
fn emptied_lists_are_reported() {
    for name in ["lists.json", "lists.journal"] {
        let daemon = Daemon::start(&[]);
        fs::write(daemon.in_state(name), "").unwrap();
        daemon.fake.state().clear_lists();
        let daemon = daemon.restart(&[]);
        let warnings = daemon.service.status().unwrap().warnings;
        let path = daemon.in_state(name).display().to_string();
        let output = |warning: &String| warning.contains(&format!("{path}: it is empty"));
        assert!(warnings.iter().any(output), "{name}: {warnings:?}");
    }
}

/// Only the daemon can read its state, whatever had the name before.
#[test]
fn the_files_are_the_daemon_s_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut daemon = Daemon::start(&[]);
    let spy = daemon.directory.path().join("spy");
    fs::write(&spy, "before").unwrap();
    for name in ["edits.json.new", "applied.json.new", "lists.journal.new"] {
        symlink(&spy, daemon.in_state(name)).unwrap();
    }
    daemon.set("203.0.113.7", "5/s", None).unwrap();
    applied(&mut daemon);
    let deny = limiter_api::lists::SetList {
        sources: vec!["192.0.2.9".to_owned()],
        ..limiter_api::lists::SetList::default()
    };
    daemon.service.list(&deny).unwrap();
    for entry in fs::read_dir(daemon.in_state("")).unwrap() {
        let entry = entry.unwrap();
        let metadata = fs::symlink_metadata(entry.path()).unwrap();
        assert!(metadata.is_file(), "{:?}", entry.path());
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600, "{:?}", entry.path());
    }
    assert_eq!(fs::read_to_string(spy).unwrap(), "before");
}
