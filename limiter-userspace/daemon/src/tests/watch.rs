//! A change of the rule files is found however it is made, and is put in force only if the options
//! ask for it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use limiter_api::status::Status;

use super::*;
use crate::rule_sets::watch::{Watch, watch};
use crate::service::lock;

/// Far longer than any step takes: a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_mins(1);

/// Longer than [`PATIENCE`]: a change found within that was reported by the kernel.
const NEVER: Duration = Duration::from_hours(1);

/// Longer than any test, by the clock of the data path, which stands still.
const TRIAL: Option<Duration> = Some(Duration::from_hours(1));

fn rules(rate: u64) -> String {
    format!(
        "descriptors: [{{key: remote_address, rate_limit: {{unit: second, requests_per_unit: \
         {rate}}}}}]\n"
    )
}

struct Watched {
    directory: TempDir,
    paths: Vec<PathBuf>,
    fake: Fake,
    service: Mutex<Service>,
}

impl Watched {
    /// A daemon on files that `make` makes; it says which path the daemon is given.
    fn start(make: impl FnOnce(&std::path::Path) -> PathBuf) -> Self {
        Self::start_with(make, &[])
    }

    fn start_with(make: impl FnOnce(&std::path::Path) -> PathBuf, management: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let rules = directory.path().join("rules");
        fs::create_dir(&rules).unwrap();
        let paths = vec![make(&rules)];
        let state = StateDir::open(&directory.path().join("state")).unwrap();
        let read = rule_files::read(&paths);
        let digest = Digest::of(&read);
        let file = rule_files::parse(&read.unwrap(), 1522).unwrap();
        let management = management.iter().map(|text| (select(text), "management")).collect();
        let layers = Layers { file, management, ..Layers::default() };
        let stop = Arc::new(Notify::new());
        let fake = Fake::default();
        let opened = fake.open_now();
        let service = Service::start(
            opened,
            layers,
            RuleSource::Files(paths.clone()),
            digest,
            (state, Vec::new()),
            stop,
        )
        .map_err(|not_started| not_started.error)
        .unwrap();
        Self { directory, paths, fake, service: Mutex::new(service) }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join("rules").join(name)
    }

    fn status(&self) -> Status {
        lock(&self.service).status().unwrap()
    }

    fn rate(&self) -> String {
        lock(&self.service).limits().unwrap().limits[0].limit.clone()
    }

    /// Watches while `changes` runs, and tries what changes.
    fn run(&self, every: Duration, changes: impl Future<Output = ()>) {
        self.run_as(Watch { every, trial: TRIAL }, changes);
    }

    /// Watches while `changes` runs, and reports.
    fn report(&self, every: Duration, changes: impl Future<Output = ()>) {
        self.run_as(Watch { every, trial: None }, changes);
    }

    fn run_as(&self, how: Watch, changes: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            tokio::select! {
                () = watch(&self.service, &self.paths, how) => {}
                done = tokio::time::timeout(PATIENCE, changes) => {
                    assert!(done.is_ok(), "nothing happened; {:?}", self.status());
                }
            }
        });
    }

    async fn until(&self, holds: impl Fn(&Status) -> bool) {
        while !holds(&self.status()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until a rate is on trial, and confirms it.
    async fn until_rate(&self, rate: u64) {
        let wanted = format!("{rate}/s");
        while self.rate() != wanted {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(self.status().trial.is_some());
        lock(&self.service).confirm().unwrap();
    }

    /// Waits until a change on disk is reported, and says how.
    async fn until_reported(&self) -> Option<String> {
        self.until(|status| status.changed_on_disk.is_some()).await;
        self.status().changed_on_disk.unwrap().error
    }

    /// The value of the metric with a label.
    fn metric(&self, check: &str) -> String {
        let page = lock(&self.service).metrics().unwrap();
        let name = format!("limiter_rule_files_changed{{check=\"{check}\"}} ");
        let line = page.lines().find_map(|line| line.strip_prefix(&name));
        line.expect("the metric is there").to_owned()
    }
}

fn one_file(directory: &std::path::Path) -> PathBuf {
    let path = directory.join("r.yaml");
    fs::write(&path, rules(1)).unwrap();
    path
}

#[test]
fn a_file_that_is_written_or_replaced_is_found() {
    let daemon = Watched::start(one_file);
    daemon.run(NEVER, async {
        fs::write(daemon.at("r.yaml"), rules(2)).unwrap();
        daemon.until_rate(2).await;
        // The way of editors: the old file is kept under another name.
        fs::rename(daemon.at("r.yaml"), daemon.at("r.yaml~")).unwrap();
        fs::write(daemon.at("r.yaml"), rules(3)).unwrap();
        daemon.until_rate(3).await;
        fs::write(daemon.at(".r.yaml.new"), rules(4)).unwrap();
        fs::rename(daemon.at(".r.yaml.new"), daemon.at("r.yaml")).unwrap();
        daemon.until_rate(4).await;
    });
    let status = daemon.status();
    assert!(status.last_reload.ok, "{status:?}");
    assert_eq!((status.reloads.ok, status.reloads.failed), (3, 0));
}

/// Anybody who saves a half-finished file means nothing by it.
#[test]
fn a_file_that_changes_is_reported_and_never_in_force_by_itself() {
    let daemon = Watched::start(one_file);
    daemon.report(NEVER, async {
        assert_eq!((daemon.metric("ok"), daemon.metric("refused")), ("0".into(), "0".into()));
        fs::write(daemon.at("r.yaml"), rules(2)).unwrap();
        assert_eq!(daemon.until_reported().await, None);
        let status = daemon.status();
        assert_eq!((daemon.rate().as_str(), status.generation), ("1/s", 1));
        assert_eq!((status.reloads.ok, status.reloads.failed), (0, 0));
        let said = "r.yaml: changed on disk, not in force: limiter reload";
        assert!(status.warnings.iter().any(|warning| warning.ends_with(said)), "{status:?}");
        assert_eq!((daemon.metric("ok"), daemon.metric("refused")), ("1".into(), "0".into()));
        lock(&daemon.service).reload().unwrap();
        assert_eq!((daemon.rate(), daemon.status().changed_on_disk), ("2/s".into(), None));
        fs::write(daemon.at("r.yaml"), rules(3)).unwrap();
        assert_eq!(daemon.until_reported().await, None);
        // The file is as before.
        fs::write(daemon.at("r.yaml"), rules(2)).unwrap();
        daemon.until(|status| status.changed_on_disk.is_none()).await;
        assert_eq!(daemon.metric("ok"), "0");
    });
    assert_eq!(daemon.rate(), "2/s");
}

#[test]
fn a_mistake_on_disk_is_reported_with_its_place() {
    let daemon = Watched::start(one_file);
    // Reading it again and again finds the same mistake.
    daemon.report(Duration::from_millis(50), async {
        fs::write(daemon.at("r.yaml"), "descriptors: [{key: remote_adress}]\n").unwrap();
        let error = daemon.until_reported().await.unwrap();
        assert!(error.contains("r.yaml:1:"), "{error}");
        assert!(error.contains("did you mean \"remote_address\"?"), "{error}");
        assert_eq!((daemon.metric("ok"), daemon.metric("refused")), ("0".into(), "1".into()));
        fs::remove_file(daemon.at("r.yaml")).unwrap();
        daemon
            .until(|status| {
                let error =
                    status.changed_on_disk.as_ref().and_then(|on_disk| on_disk.error.clone());
                error.is_some_and(|error| error.contains("cannot read the rule file"))
            })
            .await;
        fs::write(daemon.at("r.yaml"), rules(7)).unwrap();
        daemon
            .until(|status| status.changed_on_disk.as_ref().is_some_and(|d| d.error.is_none()))
            .await;
        fs::write(daemon.at("r.yaml"), "descriptors: []\n").unwrap();
        daemon
            .until(|status| status.changed_on_disk.as_ref().is_some_and(|d| d.error.is_some()))
            .await;
        let error = daemon.until_reported().await.unwrap();
        assert!(error.contains("nobody would be limited any more"), "{error}");
    });
    assert_eq!((daemon.rate(), daemon.status().reloads.failed), ("1/s".into(), 0));
}

/// A request and the watch report the same files once, and the same way.
#[test]
fn a_reload_that_is_refused_is_reported_like_a_change() {
    let daemon = Watched::start(one_file);
    fs::write(daemon.at("r.yaml"), "descriptors: [{key: remote_adress}]\n").unwrap();
    let error = lock(&daemon.service).reload().unwrap_err().to_string();
    assert_eq!(daemon.status().changed_on_disk.unwrap().error, Some(error));
}

#[test]
fn changed_files_that_nobody_confirms_go_back_and_are_not_tried_again() {
    let daemon = Watched::start(one_file);
    daemon.run(Duration::from_millis(50), async {
        fs::write(daemon.at("r.yaml"), rules(2)).unwrap();
        daemon.until(|status| status.trial.is_some()).await;
        assert_eq!((daemon.rate(), daemon.status().changed_on_disk), ("2/s".into(), None));
        // Nobody is there to confirm them.
        let now = daemon.fake.state().now;
        daemon.fake.state().now = now.plus(Ticks::from_nanos(2 * 3_600_000_000_000));
        lock(&daemon.service).settle().unwrap();
        assert_eq!(daemon.until_reported().await, None);
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!((daemon.rate(), daemon.status().trial), ("1/s".into(), None));
    });
}

#[test]
fn the_guards_of_apply_hold_for_files_that_change() {
    let daemon = Watched::start_with(one_file, &["192.0.2.0/24"]);
    daemon.run(NEVER, async {
        let inside = rules(5).replace("remote_address", "remote_address, value: 192.0.2.7");
        fs::write(daemon.at("r.yaml"), inside).unwrap();
        let error = daemon.until_reported().await.unwrap();
        assert!(error.contains("inside the management prefix 192.0.2.0/24"), "{error}");
        assert_eq!(daemon.status().trial, None);
    });
}

#[test]
fn a_reload_does_not_lock_out_the_session_that_types_it() {
    let daemon = Watched::start_with(one_file, &["203.0.113.0/24"]);
    let asked = ReloadRules { peer: Some("192.0.2.9".parse().unwrap()), ..ReloadRules::default() };
    fs::write(daemon.at("r.yaml"), rules(2)).unwrap();
    // No tighter than before.
    lock(&daemon.service).reload_rules(asked).unwrap();
    let tight = rules(5).replace("unit: second", "unit: week");
    fs::write(daemon.at("r.yaml"), tight).unwrap();
    let refusal = lock(&daemon.service).reload_rules(asked).unwrap_err();
    assert!(refusal.to_string().contains("your own SSH session from 192.0.2.9"), "{refusal}");
    assert_eq!(daemon.rate(), "2/s");
    lock(&daemon.service).reload_rules(ReloadRules { force: true, ..asked }).unwrap();
    assert_eq!(daemon.rate(), "5/week");
}

/// One editor truncates the file and pauses; another one is aborted.
#[test]
fn a_file_that_is_emptied_for_a_while_lifts_no_limit() {
    let daemon = Watched::start(one_file);
    daemon.run(NEVER, async {
        fs::write(daemon.at("r.yaml"), "").unwrap();
        let error = daemon.until_reported().await.unwrap();
        assert_eq!(daemon.rate(), "1/s");
        assert!(error.contains("r.yaml:1:1: no rules are in the file"), "{error}");
        fs::write(daemon.at("r.yaml"), rules(2)).unwrap();
        daemon.until_rate(2).await;
        fs::write(daemon.at("r.yaml"), "descriptors: []\n").unwrap();
        let error = daemon.until_reported().await.unwrap();
        assert_eq!(daemon.rate(), "2/s");
        assert!(error.contains("`limiter reload --force`"), "{error}");
        fs::write(daemon.at("r.yaml"), rules(3)).unwrap();
        daemon.until_rate(3).await;
    });
    assert_eq!(daemon.status().reloads.ok, 2);
}

#[test]
fn a_file_of_several_may_say_that_it_has_no_rules() {
    let daemon = Watched::start(|directory| {
        one_file(directory);
        let other = rules(5).replace("remote_address", "remote_address, value: 192.0.2.1");
        fs::write(directory.join("s.yaml"), other).unwrap();
        directory.to_owned()
    });
    daemon.run(NEVER, async {
        fs::write(daemon.at("s.yaml"), "").unwrap();
        daemon.until_reported().await.unwrap();
        assert_eq!(daemon.status().rules, 2);
        fs::write(daemon.at("s.yaml"), "descriptors: []\n").unwrap();
        daemon.until(|status| status.rules == 1).await;
    });
}

#[test]
fn what_did_not_change_is_no_change() {
    let daemon = Watched::start(one_file);
    daemon.run(Duration::from_millis(50), async {
        fs::write(daemon.at("r.yaml"), rules(1)).unwrap();
        fs::write(daemon.at("other.txt"), "not a rule file").unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    });
    let status = daemon.status();
    assert_eq!((status.generation, status.reloads.ok, status.reloads.failed), (1, 0, 0));
}

#[test]
fn files_of_a_directory_come_and_go() {
    let daemon = Watched::start(|directory| {
        one_file(directory);
        directory.to_owned()
    });
    daemon.run(NEVER, async {
        let other = rules(5).replace("remote_address", "remote_address, value: 192.0.2.1");
        fs::write(daemon.at("s.yaml"), other).unwrap();
        daemon.until(|status| status.rules == 2).await;
        lock(&daemon.service).confirm().unwrap();
        fs::remove_file(daemon.at("s.yaml")).unwrap();
        daemon.until(|status| status.rules == 1).await;
        lock(&daemon.service).confirm().unwrap();
        // The directory itself is replaced.
        let beside = daemon.directory.path().join("new");
        fs::create_dir(&beside).unwrap();
        fs::write(beside.join("r.yaml"), rules(8)).unwrap();
        fs::rename(daemon.at(""), daemon.directory.path().join("old")).unwrap();
        fs::rename(&beside, daemon.directory.path().join("rules")).unwrap();
        daemon.until_rate(8).await;
        fs::write(daemon.at("r.yaml"), rules(9)).unwrap();
        daemon.until_rate(9).await;
    });
}

#[test]
fn a_config_map_is_swapped() {
    for whole in [true, false] {
        let daemon = Watched::start(|directory| {
            fs::create_dir(directory.join("..1")).unwrap();
            fs::write(directory.join("..1/r.yaml"), rules(1)).unwrap();
            symlink("..1", directory.join("..data")).unwrap();
            symlink("..data/r.yaml", directory.join("r.yaml")).unwrap();
            if whole { directory.to_owned() } else { directory.join("r.yaml") }
        });
        daemon.run(NEVER, async {
            for rate in 2..5 {
                let name = format!("..{rate}");
                fs::create_dir(daemon.at(&name)).unwrap();
                fs::write(daemon.at(&name).join("r.yaml"), rules(rate)).unwrap();
                symlink(&name, daemon.at("..data_tmp")).unwrap();
                fs::rename(daemon.at("..data_tmp"), daemon.at("..data")).unwrap();
                fs::remove_dir_all(daemon.at(&format!("..{}", rate - 1))).unwrap();
                daemon.until_rate(rate).await;
            }
        });
    }
}

#[test]
fn what_the_kernel_does_not_report_is_found_by_reading() {
    let daemon = Watched::start(|directory| {
        // Nobody watches the middle of a chain of links.
        for name in ["a", "b"] {
            fs::create_dir(directory.join(name)).unwrap();
        }
        fs::write(directory.join("a/r.yaml"), rules(1)).unwrap();
        fs::create_dir(directory.join("links")).unwrap();
        symlink("../a", directory.join("links/now")).unwrap();
        fs::create_dir(directory.join("given")).unwrap();
        symlink("../links/now/r.yaml", directory.join("given/r.yaml")).unwrap();
        directory.join("given/r.yaml")
    });
    daemon.run(Duration::from_millis(100), async {
        fs::write(daemon.at("b/r.yaml"), rules(2)).unwrap();
        symlink("../b", daemon.at("links/tmp")).unwrap();
        fs::rename(daemon.at("links/tmp"), daemon.at("links/now")).unwrap();
        daemon.until_rate(2).await;
    });
}
