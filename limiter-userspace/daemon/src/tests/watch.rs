//! A change of the rule files is a reload, however it is made.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use super::*;
use crate::api::status::Status;
use crate::service::lock;
use crate::watch::watch;

/// Far beyond what any step takes: a test that waits for it has failed.
const PATIENCE: Duration = Duration::from_mins(1);

/// Longer than [`PATIENCE`]: what is found within it was told by the kernel.
const NEVER: Duration = Duration::from_hours(1);

fn rules(rate: u64) -> String {
    format!(
        "descriptors: [{{key: remote_address, rate_limit: {{unit: second, requests_per_unit: \
         {rate}}}}}]\n"
    )
}

struct Watched {
    directory: TempDir,
    paths: Vec<PathBuf>,
    service: Mutex<Service>,
}

impl Watched {
    /// A daemon on files that `make` makes; it says which path the daemon is given.
    fn start(make: impl FnOnce(&std::path::Path) -> PathBuf) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let rules = directory.path().join("rules");
        fs::create_dir(&rules).unwrap();
        let paths = vec![make(&rules)];
        let state = StateDir::open(&directory.path().join("state")).unwrap();
        let read = rule_files::read(&paths);
        let digest = Digest::of(&read);
        let file = rule_files::parse(&read.unwrap(), 1522).unwrap();
        let layers = Layers { file, ..Layers::default() };
        let stop = Arc::new(Notify::new());
        let opened = Fake::default().open_now();
        let service =
            Service::start(opened, layers, paths.clone(), digest, (state, Vec::new()), stop)
                .map_err(|not_started| not_started.error)
                .unwrap();
        Self { directory, paths, service: Mutex::new(service) }
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

    /// Watches while `changes` runs.
    fn run(&self, every: Duration, changes: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            tokio::select! {
                () = watch(&self.service, &self.paths, every) => {}
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

    async fn until_rate(&self, rate: u64) {
        let wanted = format!("{rate}/s");
        while self.rate() != wanted {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn one_file(directory: &std::path::Path) -> PathBuf {
    let path = directory.join("r.yaml");
    fs::write(&path, rules(1)).unwrap();
    path
}

#[test]
fn a_file_that_is_written_or_replaced_is_reloaded() {
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

#[test]
fn a_mistake_keeps_the_rules_and_is_counted_once() {
    let daemon = Watched::start(one_file);
    // Reading it again and again finds the same mistake, and does not count it again.
    daemon.run(Duration::from_millis(50), async {
        fs::write(daemon.at("r.yaml"), "descriptors: [{key: remote_adress}]\n").unwrap();
        daemon.until(|status| status.reloads.failed == 1).await;
        assert_eq!(daemon.rate(), "1/s");
        let error = daemon.status().last_reload.error.unwrap();
        assert!(error.contains("did you mean \"remote_address\"?"), "{error}");
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(daemon.status().reloads.failed, 1);
        fs::remove_file(daemon.at("r.yaml")).unwrap();
        daemon.until(|status| status.reloads.failed == 2).await;
        fs::write(daemon.at("r.yaml"), rules(7)).unwrap();
        daemon.until_rate(7).await;
    });
    assert_eq!(daemon.status().reloads.ok, 1);
}

/// An editor that truncates the file and pauses, and one that is given up.
#[test]
fn a_file_that_is_emptied_for_a_while_lifts_no_limit() {
    let daemon = Watched::start(one_file);
    daemon.run(NEVER, async {
        fs::write(daemon.at("r.yaml"), "").unwrap();
        daemon.until(|status| status.reloads.failed == 1).await;
        assert_eq!(daemon.rate(), "1/s");
        let error = daemon.status().last_reload.error.unwrap();
        assert!(error.contains("r.yaml:1:1: no rules are in the file"), "{error}");
        fs::write(daemon.at("r.yaml"), rules(2)).unwrap();
        daemon.until_rate(2).await;
        fs::write(daemon.at("r.yaml"), "descriptors: []\n").unwrap();
        daemon.until(|status| status.reloads.failed == 2).await;
        assert_eq!(daemon.rate(), "2/s");
        let error = daemon.status().last_reload.error.unwrap();
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
        daemon.until(|status| status.reloads.failed == 1).await;
        assert_eq!(daemon.status().rules, 2);
        fs::write(daemon.at("s.yaml"), "descriptors: []\n").unwrap();
        daemon.until(|status| status.rules == 1).await;
    });
}

#[test]
fn what_did_not_change_is_no_reload() {
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
        fs::remove_file(daemon.at("s.yaml")).unwrap();
        daemon.until(|status| status.rules == 1).await;
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
fn what_the_kernel_does_not_tell_is_found_by_reading() {
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
