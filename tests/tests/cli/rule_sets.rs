//! Whole rule sets: watched, compared, applied and exported.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Output};
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

/// Saving a file applies nothing, whether it is whole or half-finished.
#[test]
fn a_changed_file_is_reported_and_not_in_force() -> Result<()> {
    require_root();
    let bed = Testbed::create("watch")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    let before = limiter.json(&["list"])?;
    fs::write(limiter.rules(), RULES.replace("192.0.2.0/24", "198.51.100.0/24"))?;
    wait_for(&limiter, |status| status["changed_on_disk"].is_object())?;
    let report = limiter.ok(["status"])?;
    ensure!(
        report.contains("rules.yaml: changed on disk, not in force: limiter reload"),
        "{report}"
    );
    fs::write(limiter.rules(), RULES.replace("unit", "unitt"))?;
    let status = wait_for(&limiter, |status| status["changed_on_disk"]["error"].is_string())?;
    let error = status["changed_on_disk"]["error"].as_str().context("no error")?;
    ensure!(error.contains("rules.yaml:3:") && error.contains("\"unit\""), "{error}");
    let after = limiter.json(&["list"])?;
    ensure!(after["generation"] == before["generation"], "a file that was saved did something");
    limiter.close()?;
    bed.close()
}

#[test]
fn a_changed_file_is_on_trial_where_that_was_asked_for() -> Result<()> {
    require_root();
    let bed = Testbed::create("watchap")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.options(["--watch", "apply", "--watch-trial", "1h"]);
    limiter.start()?;
    fs::write(limiter.rules(), RULES.replace("192.0.2.0/24", "198.51.100.0/24"))?;
    wait_for(&limiter, |status| status["trial"].is_object())?;
    ensure!(entry(&limiter, "198.51.100.0/24")?.is_some(), "the new rule is not on trial");
    limiter.ok(["revert"])?;
    ensure!(entry(&limiter, "192.0.2.0/24")?.is_some(), "the old rule is not back");
    fs::write(limiter.rules(), RULES.replace("192.0.2.0/24", "203.0.113.0/24"))?;
    wait_for(&limiter, |status| status["trial"].is_object())?;
    limiter.ok(["confirm"])?;
    let status = limiter.json(&["status"])?;
    ensure!(status["changed_on_disk"].is_null() && status["applied"] == false, "{status}");
    limiter.kill()?;
    limiter.start()?;
    ensure!(entry(&limiter, "203.0.113.0/24")?.is_some(), "what was confirmed is not in force");
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
        "descriptors: [{key: destination_port, value: 22, rate_limit: {unit: minute, \
         requests_per_unit: 3}}]\n",
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
        "kept from `limiter set`: rule for 203.0.113.5: 5/s burst 5",
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

    // An export is a rule file that says the same.
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

    // A change of the file ends nothing.
    limiter.ok(["apply", "--force", directory])?;
    fs::write(limiter.rules(), format!("# changed\n{RULES}"))?;
    wait_for(&limiter, |status| status["changed_on_disk"].is_object())?;
    ensure!(limiter.json(&["status"])?["applied"] == true);
    limiter.ok(["reload"])?;
    ensure!(entry(&limiter, "destination_port=22")?.is_none(), "the applied rules are still there");
    limiter.close()?;
    bed.close()
}

/// A command of somebody who came by SSH from 198.51.100.9.
fn by_ssh(limiter: &Limiter, args: &[&str]) -> Result<Output> {
    let socket = limiter.socket().to_str().context("path")?;
    let mut command = Command::new("env");
    command.arg("SSH_CONNECTION=198.51.100.9 50000 192.0.2.1 22").arg(limiter.binary());
    Ok(command.args(["--socket", socket]).args(args).output()?)
}

fn ok_by_ssh(limiter: &Limiter, args: &[&str]) -> Result<()> {
    let output = by_ssh(limiter, args)?;
    ensure!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

#[test]
fn who_applies_by_ssh_is_not_locked_out() -> Result<()> {
    require_root();
    let bed = Testbed::create("hand")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    let rules = limiter.rules().to_str().context("path")?.to_owned();
    let before = state(&limiter)?;
    let applied = by_ssh(&limiter, &["apply", &rules])?;
    check_refused("apply", applied, &["every source", "198.51.100.9", "limiter allow"])?;
    ensure!(state(&limiter)? == before, "a refused apply changed something");
    limiter.ok(["allow", "198.51.100.9"])?;
    ok_by_ssh(&limiter, &["apply", &rules])?;
    limiter.close()?;
    bed.close()
}

#[test]
fn who_sets_and_denies_by_ssh_is_not_locked_out() -> Result<()> {
    require_root();
    let bed = Testbed::create("typed")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    let unsafe_start = limiter.json(&["status"])?["warnings"].to_string();
    let is_safe = std::env::var_os("SSH_CONNECTION").is_some();
    ensure!(
        is_safe || unsafe_start.contains("no address is safe from the limits"),
        "{unsafe_start}"
    );
    // Longer than a request, and what would lock out comes last.
    let file = limiter.rules().with_file_name("deny.txt");
    let others = (0..1_200).map(|n| format!("10.0.{}.{}\n", n / 256, n % 256));
    fs::write(&file, others.chain(["198.51.100.0/24\n".to_owned()]).collect::<String>())?;
    let file = file.to_str().context("path")?;
    let locking_out: [&[&str]; 5] = [
        &["set", "198.51.100.9", "1/week"],
        &["set", "0.0.0.0/0", "1/s"],
        &["deny", "198.51.0.0/16"],
        &["deny", "203.0.113.1", "198.51.100.9", "--for", "10m"],
        &["deny", "--file", file],
    ];
    for args in locking_out {
        let before = (state(&limiter)?, limiter.ok(["lists"])?);
        let words = &["198.51.100.9", "your own SSH session", "--force"];
        check_refused(args[0], by_ssh(&limiter, args)?, words)?;
        ensure!((state(&limiter)?, limiter.ok(["lists"])?) == before, "{args:?} did something");
    }
    // The advice in the message works.
    ok_by_ssh(&limiter, &["allow", "198.51.100.9"])?;
    for args in &locking_out[..3] {
        ok_by_ssh(&limiter, args)?;
    }
    for args in [["unlist", "198.51.100.9"], ["unset", "198.51.100.9"]] {
        let forced = [&args[..], &["--force"]].concat();
        if args[0] == "unlist" {
            check_refused("unlist", by_ssh(&limiter, &args)?, &["198.51.100.9", "--force"])?;
        }
        ok_by_ssh(&limiter, &forced)?;
    }
    limiter.ok(["unlist", "198.51.0.0/16"])?;
    ok_by_ssh(&limiter, &["deny", "--file", file, "--force"])?;
    limiter.close()?;
    bed.close()
}

/// The request of `curl`, for anybody who says in it where they are.
#[test]
fn who_asks_over_http_is_not_locked_out() -> Result<()> {
    require_root();
    let bed = Testbed::create("curled")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    let socket = limiter.socket().to_str().context("path")?.to_owned();
    let ask = |method: &str, path: &str, body: &str| -> Result<(String, String)> {
        let url = format!("http://limiter{path}");
        let mut curl = Command::new("curl");
        curl.args([
            "-s",
            "-m",
            "30",
            "-w",
            "\n%{http_code}",
            "--unix-socket",
            &socket,
            "-X",
            method,
        ]);
        let output = curl.args([url.as_str(), "-d", body]).output()?;
        let text = String::from_utf8(output.stdout)?;
        let (answer, code) = text.rsplit_once('\n').context("no status")?;
        Ok((code.to_owned(), answer.to_owned()))
    };
    let session = r#""session":{"peer":"198.51.100.9","port":22}"#;
    let set = r#"{"source":"198.51.100.9","rate":"1/week""#;
    let deny = r#"{"list":"deny","sources":["0.0.0.0/0"]"#;
    for (path, request) in [("/v1/limits", set), ("/v1/lists", deny)] {
        let (code, answer) = ask("PUT", path, &format!("{request},{session}}}"))?;
        ensure!(
            code == "409" && answer.contains("your own SSH session"),
            "{path}: {code} {answer}"
        );
        let (code, answer) = ask("PUT", path, &format!("{request},{session},\"force\":true}}"))?;
        ensure!(code == "200", "{path}: {code} {answer}");
    }
    limiter.close()?;
    bed.close()
}

#[test]
fn emptied_files_lift_no_limit() -> Result<()> {
    require_root();
    let bed = Testbed::create("emptied")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    let rules = limiter.rules().to_str().context("path")?.to_owned();
    let before = state(&limiter)?;
    fs::write(&rules, "")?;
    let status = wait_for(&limiter, |status| status["changed_on_disk"]["error"].is_string())?;
    let error = status["changed_on_disk"]["error"].as_str().context("no error")?;
    for word in ["rules.yaml:1:1: ", "no rules are in the file", "`descriptors: []`"] {
        ensure!(error.contains(word), "no {word}: {error}");
    }
    for args in [&["reload"][..], &["reload", "--force"], &["check", &rules], &["diff", &rules]] {
        check_refused(args[0], limiter.cli(args)?, &["rules.yaml:1:1: ", "`descriptors: []`"])?;
    }
    check_refused("apply", limiter.cli(["apply", "--force", &rules])?, &["rules.yaml:1:1: "])?;
    ensure!(state(&limiter)? == before, "an emptied file changed something");
    limiter.kill()?;
    let start = limiter.run_to_end()?;
    ensure!(start.status.code() == Some(2), "it starts with an empty file: {start:?}");

    // A lock-out on purpose is taken on purpose.
    fs::write(&rules, RULES)?;
    limiter.start()?;
    fs::write(&rules, "descriptors: []\n")?;
    wait_for(&limiter, |status| status["changed_on_disk"]["error"].is_string())?;
    let words = ["nobody would be limited", "limiter reload --force"];
    check_refused("reload", limiter.cli(["reload"])?, &words)?;
    ensure!(entry(&limiter, "192.0.2.0/24")?.is_some(), "the rules are gone");
    limiter.ok(["reload", "--force"])?;
    ensure!(entry(&limiter, "192.0.2.0/24")?.is_none(), "the rules are still there");
    limiter.kill()?;
    limiter.start()?;
    let warnings = limiter.json(&["status"])?["warnings"].to_string();
    ensure!(warnings.contains("nobody is limited"), "{warnings}");
    limiter.close()?;
    bed.close()
}

#[test]
fn an_export_into_a_file_is_whole_or_not_at_all() -> Result<()> {
    require_root();
    let bed = Testbed::create("exported")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    let rules = limiter.rules().to_str().context("path")?.to_owned();
    limiter.ok(["set", "203.0.113.5", "5/s"])?;
    let said = limiter.ok(["export", "--to", &rules])?;
    ensure!(said.contains(&rules) && !said.contains("descriptors"), "{said}");
    let written = fs::read_to_string(&rules)?;
    ensure!(written == limiter.ok(["export"])?, "{written}");
    wait_for(&limiter, |status| status["changed_on_disk"].is_object())?;
    limiter.kill()?;
    // Without a daemon there is nothing to write, and nothing is written.
    check_refused("export", limiter.cli(["export", "--to", &rules])?, &["the daemon at"])?;
    ensure!(fs::read_to_string(&rules)? == written, "it was written all the same");
    limiter.start()?;
    let nowhere = limiter.cli(["export", "--to", "/nowhere/rules.yaml"])?;
    check_refused("export", nowhere, &["/nowhere/rules.yaml", "nothing is changed"])?;
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
            "descriptors: [{{key: remote_address, value: {source}, rate_limit: {{unit: second, \
             requests_per_unit: 5}}}}]\n"
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
    wait_for(&limiter, |status| status["changed_on_disk"].is_object())?;
    limiter.ok(["reload"])?;
    ensure!(entry(&limiter, "203.0.113.1")?.is_none(), "the old version is still there");
    ensure!(entry(&limiter, "203.0.113.2")?.is_some(), "the new version is not there");
    // One rule in a file and in the directory.
    version("..3", "192.0.2.0/24")?;
    let status = wait_for(&limiter, |status| status["changed_on_disk"]["error"].is_string())?;
    let error = status["changed_on_disk"]["error"].as_str().context("no error")?;
    for word in ["more.yaml:1:15", "rules.yaml:4:5", "192.0.2.0/24"] {
        ensure!(error.contains(word), "no {word}: {error}");
    }
    ensure!(entry(&limiter, "203.0.113.2")?.is_some(), "a mistake changed the rules");
    limiter.close()?;
    bed.close()
}
