//! Whole rule sets: watched, compared, applied and exported.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Output;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::limiter::Limiter;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use serde_json::Value;

use super::{RULES, check_refused, entry, state};

/// Waits until the status is as wanted, and returns it.
fn wait_for(limiter: &Limiter, holds: impl Fn(&Value) -> bool) -> Result<Value> {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let status = limiter.json(&["status"])?;
        if holds(&status) {
            return Ok(status);
        }
        ensure!(Instant::now() < deadline, "it did not happen within a minute: {status}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_changed_file_is_reloaded() -> Result<()> {
    require_root();
    let bed = Testbed::create("watch")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    fs::write(limiter.rules(), RULES.replace("192.0.2.0/24", "198.51.100.0/24"))?;
    wait_for(&limiter, |status| status["reloads"]["ok"] == 1)?;
    ensure!(entry(&limiter, "192.0.2.0/24")?.is_none(), "the old rule is still there");
    ensure!(entry(&limiter, "198.51.100.0/24")?.is_some(), "the new rule is not there");
    let before = limiter.json(&["list"])?;
    fs::write(limiter.rules(), RULES.replace("unit", "unitt"))?;
    let status = wait_for(&limiter, |status| status["reloads"]["failed"] == 1)?;
    let error = status["last_reload"]["error"].as_str().context("no error")?;
    ensure!(error.contains("rules.yaml:3:") && error.contains("\"unit\""), "{error}");
    ensure!(
        limiter.json(&["list"])?["generation"] == before["generation"],
        "a mistake did something"
    );
    limiter.close()?;
    bed.close()
}

#[test]
fn rule_sets_are_compared_applied_and_exported() -> Result<()> {
    require_root();
    let bed = Testbed::create("apply")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    limiter.ok(["set", "203.0.113.5", "5/s"])?;
    let directory = limiter.rules().with_file_name("new.d");
    fs::create_dir(&directory)?;
    let new = RULES.replace("requests_per_unit: 10}", "requests_per_unit: 11}");
    fs::write(directory.join("a.yaml"), new)?;
    fs::write(
        directory.join("b.yaml"),
        "descriptors: [{key: destination_port, value: 22, rate_limit: {unit: minute, requests_per_unit: 3}}]\n",
    )?;
    let directory = directory.to_str().context("path")?;
    let rules = limiter.rules().to_str().context("path")?.to_owned();

    let same = limiter.cli(["diff", &rules])?;
    ensure!(same.status.code() == Some(0), "{same:?}");
    let other = limiter.cli(["diff", directory])?;
    let text = String::from_utf8(other.stdout)?;
    ensure!(other.status.code() == Some(1), "{:?}: {text}", other.status);
    for line in [
        "~ rule for 192.0.2.0/24: 10/s burst 10; name \"office\" -> 11/s burst 11; name \"office\"",
        "+ rule for destination_port=22: 3/min burst 3",
        "1 added, 0 removed, 1 changed, 1 unchanged",
        "stays, by `limiter set`: rule for 203.0.113.5: 5/s burst 5",
    ] {
        ensure!(text.lines().any(|other| other == line), "no line {line:?}: {text}");
    }
    check_refused("no such file", limiter.cli(["diff", "/nowhere/x.yaml"])?, &["/nowhere/x.yaml"])?;

    // `--force`, because these tests may be run in an SSH session.
    limiter.ok(["apply", "--force", directory])?;
    let before = state(&limiter)?.0["limits"].clone();
    ensure!(limiter.json(&["status"])?["applied"] == true);
    ensure!(entry(&limiter, "destination_port=22")?.is_some(), "{before}");
    limiter.kill()?;
    limiter.start()?;
    ensure!(state(&limiter)?.0["limits"] == before, "a crash lost the applied rules");
    ensure!(limiter.cli(["diff", directory])?.status.code() == Some(0), "not what was applied");

    // What is exported is a rule file that says the same.
    let exported = limiter.rules().with_file_name("exported.yaml");
    fs::write(&exported, limiter.ok(["export"])?)?;
    let exported = exported.to_str().context("path")?;
    limiter.ok(["check", exported])?;
    let diff = limiter.cli(["--output", "json", "diff", exported])?.stdout;
    let diff: Value = serde_json::from_slice(&diff)?;
    ensure!(diff["removed"] == serde_json::json!([]), "{diff}");
    ensure!(diff["changed"] == serde_json::json!([]), "{diff}");
    ensure!(diff["added"][0]["subject"] == "rule for 203.0.113.5", "{diff}");

    limiter.ok(["reload"])?;
    ensure!(limiter.json(&["status"])?["applied"] == false);
    ensure!(limiter.cli(["diff", &rules])?.status.code() == Some(0), "not the file's rules");

    // A change of the file ends applied rules, too.
    limiter.ok(["apply", "--force", directory])?;
    fs::write(limiter.rules(), format!("# changed\n{RULES}"))?;
    wait_for(&limiter, |status| status["applied"] == false)?;
    ensure!(entry(&limiter, "destination_port=22")?.is_none(), "the applied rules are still there");
    limiter.close()?;
    bed.close()
}

#[test]
fn who_applies_by_ssh_is_not_locked_out() -> Result<()> {
    require_root();
    let bed = Testbed::create("hand")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    let rules = limiter.rules().to_str().context("path")?.to_owned();
    let before = state(&limiter)?;
    let session = "SSH_CONNECTION=198.51.100.9 50000 192.0.2.1 22";
    let apply = |limiter: &Limiter| -> Result<Output> {
        let socket = limiter.socket().to_str().context("path")?;
        let mut command = std::process::Command::new("env");
        command.arg(session).arg(limiter.binary()).args(["--socket", socket, "apply", &rules]);
        Ok(command.output()?)
    };
    check_refused("apply", apply(&limiter)?, &["every source", "198.51.100.9", "limiter allow"])?;
    ensure!(state(&limiter)? == before, "a refused apply changed something");
    limiter.ok(["allow", "198.51.100.9"])?;
    let applied = apply(&limiter)?;
    ensure!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    limiter.close()?;
    bed.close()
}

#[test]
fn files_and_a_swapped_directory_are_one_rule_set() -> Result<()> {
    require_root();
    let bed = Testbed::create("several")?;
    let mut limiter = bed.limiter(RULES)?;
    let directory = limiter.rules().with_file_name("rules.d");
    // As Kubernetes mounts a ConfigMap: a link to a directory of each version.
    let version = |name: &str, source: &str| -> Result<()> {
        fs::create_dir_all(directory.join(name))?;
        let text = format!(
            "descriptors: [{{key: remote_address, value: {source}, rate_limit: {{unit: second, requests_per_unit: 5}}}}]\n"
        );
        fs::write(directory.join(name).join("more.yaml"), text)?;
        symlink(name, directory.join("..data_tmp"))?;
        Ok(fs::rename(directory.join("..data_tmp"), directory.join("..data"))?)
    };
    version("..1", "203.0.113.1")?;
    symlink("..data/more.yaml", directory.join("more.yaml"))?;
    limiter.options(["--rules", directory.to_str().context("path")?]);
    limiter.start()?;
    ensure!(entry(&limiter, "192.0.2.0/24")?.is_some(), "the rule of the file is not there");
    ensure!(entry(&limiter, "203.0.113.1")?.is_some(), "the rule of the directory is not there");
    version("..2", "203.0.113.2")?;
    wait_for(&limiter, |status| status["reloads"]["ok"] == 1)?;
    ensure!(entry(&limiter, "203.0.113.1")?.is_none(), "the old version is still there");
    ensure!(entry(&limiter, "203.0.113.2")?.is_some(), "the new version is not there");
    // The same rule in a file and in the directory.
    version("..3", "192.0.2.0/24")?;
    let status = wait_for(&limiter, |status| status["reloads"]["failed"] == 1)?;
    let error = status["last_reload"]["error"].as_str().context("no error")?;
    for word in ["more.yaml:1:15", "rules.yaml:4:5", "192.0.2.0/24"] {
        ensure!(error.contains(word), "no {word}: {error}");
    }
    ensure!(entry(&limiter, "203.0.113.2")?.is_some(), "a mistake changed the rules");
    limiter.close()?;
    bed.close()
}
