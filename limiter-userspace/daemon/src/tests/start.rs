//! The start of the daemon: what is refused, and what a refused start leaves behind.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use limiter_datapath::fake::Fake;
use limiter_datapath::{ModeChoice, Options, SourceTable, TcOrder};
use tempfile::TempDir;

use super::RULES;
use crate::disk::state_dir::StateDir;
use crate::rule_sets::rule_files::RuleSource;
use crate::{EventOptions, RunOptions, StartError, run};

fn options(directory: &TempDir) -> RunOptions {
    let path = |name: &str| -> PathBuf { directory.path().join(name) };
    RunOptions {
        interfaces: vec!["fake0".into()],
        hooks: vec![limiter_datapath::Hook::Xdp],
        mode: ModeChoice::Native,
        rules: RuleSource::Files(vec![path("r.yaml")]),
        socket: path("s/limiter.sock"),
        state_dir: path("state"),
        datapath: Options {
            pin_dir: path("pins"),
            max_sources: 1024,
            source_table: SourceTable::Hash,
            max_rules: 64,
            max_keys: 64,
            kernel_log: 0,
            tc_order: TcOrder::First,
            then: None,
        },
        source_table: None,
        management: Vec::new(),
        watch: None,
        events: EventOptions::default(),
        daemon_lost_after: Duration::from_secs(30),
        detach_on_exit: false,
        metrics_listen: None,
        #[cfg(feature = "page")]
        page_listen: None,
        cluster: None,
    }
}

#[test]
fn bad_input_never_reaches_the_kernel() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    let refused = |options: &RunOptions, part: &str| {
        let error = run(options, &fake).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
        assert!(!error.is_failure(), "{error}");
    };
    let good = options(&directory);
    refused(&good, "r.yaml: cannot read the rule file: No such file or directory");
    fs::create_dir(directory.path().join("d.yaml")).unwrap();
    refused(
        &RunOptions {
            rules: RuleSource::Files(vec![directory.path().join("d.yaml")]),
            ..good.clone()
        },
        "d.yaml: no rule file is in this directory",
    );
    fs::write(&good.rules.paths()[0], RULES.replace("burst: 20", "brust: 20")).unwrap();
    refused(&good, "did you mean \"burst\"");
    fs::write(
        &good.rules.paths()[0],
        RULES.replace("requests_per_unit: 1000", "requests_per_unit: 999999999999"),
    )
    .unwrap();
    refused(&good, "r.yaml:4:5: rule for 192.0.2.0/24: 999999999999/s is faster");
    fs::write(&good.rules.paths()[0], RULES).unwrap();
    refused(
        &RunOptions { interfaces: vec!["nosuch0".into()], ..good.clone() },
        "there is no interface nosuch0",
    );
    refused(
        &RunOptions { interfaces: vec!["fake0".into(); 2], ..good.clone() },
        "--iface fake0 is given twice",
    );
    refused(
        &RunOptions { management: vec!["10.0.0.1/8".into()], ..good.clone() },
        "--management: 10.0.0.1/8 has host bits set: write 10.0.0.0/8",
    );
    assert!(!directory.path().join("state").exists());
    fs::create_dir(directory.path().join("state")).unwrap();
    fs::create_dir(directory.path().join("state/edits.json")).unwrap();
    refused(&good, "state/edits.json: cannot read the state: it is no regular file");
    fs::remove_dir(directory.path().join("state/edits.json")).unwrap();
    fs::create_dir(directory.path().join("s")).unwrap();
    fs::write(&good.socket, "precious").unwrap();
    refused(&good, "is not a socket: remove it");
    assert_eq!(fs::read(&good.socket).unwrap(), b"precious");
    assert_eq!(fake.state().opened, 0);
}

/// A directory with the name of a state file is refused alike, whichever file it is.
#[test]
fn a_state_file_that_is_no_file_is_refused() {
    for name in ["edits.json", "applied.json", "ends.json", "lists.json", "lists.journal"] {
        let directory = tempfile::tempdir().unwrap();
        let options = options(&directory);
        fs::write(&options.rules.paths()[0], RULES).unwrap();
        fs::create_dir_all(options.state_dir.join(name)).unwrap();
        let error = run(&options, &Fake::default()).unwrap_err();
        assert!(error.to_string().contains(&format!("state/{name}: cannot read the")), "{error}");
        assert!(!error.is_failure(), "{name}: {error}");
        assert!(!options.socket.exists());
    }
}

#[test]
fn a_second_daemon_is_refused_with_the_first_one_s_pid() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(&directory);
    fs::write(&options.rules.paths()[0], RULES).unwrap();
    let first = StateDir::open(&options.state_dir).unwrap();
    let error = run(&options, &Fake::default()).unwrap_err();
    let pid = std::process::id();
    assert!(matches!(error, StartError::State(_)));
    assert!(error.to_string().contains(&format!("another daemon (pid {pid}) uses")), "{error}");
    for option in ["--iface", "--state-dir", "--pin-dir", "--socket"] {
        assert!(error.to_string().contains(option), "{option}: {error}");
    }
    drop(first);
    drop(StateDir::open(&options.state_dir).unwrap());
}

#[test]
fn a_start_that_fails_takes_its_program_away_again() {
    for adopted in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let options = options(&directory);
        fs::write(&options.rules.paths()[0], RULES).unwrap();
        let fake = Fake::default();
        fake.state().refuse_commits = true;
        fake.state().adopted = adopted;
        let error = run(&options, &fake).unwrap_err();
        assert!(error.is_failure(), "{error}");
        let state = fake.state();
        assert_eq!((state.opened, state.detached, state.left), (1, !adopted, adopted));
        assert!(!options.socket.exists());
    }
}
