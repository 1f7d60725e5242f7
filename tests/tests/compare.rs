//! `limiter import --compare`: rules of another program beside their translation, with packets.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::limiter::binary;
use limiter_tests::netns;
use limiter_tests::root::require_root;
use limiter_tests::work_dir::WorkDir;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The program that `limiter import --compare` becomes.
fn compare(file: &Path) -> Result<Command> {
    let mut command = Command::new(limiter_tests::limiter::sandbox()?);
    command.arg("--limiter").arg(binary()?).arg("--json").arg("--compare").arg(file);
    Ok(command)
}

/// Text of `iptables-save` with rules in the chain INPUT.
fn iptables(policy: &str, rules: &[&str]) -> String {
    let rules: Vec<String> = rules.iter().map(|rule| format!("-A INPUT {rule}\n")).collect();
    format!("*filter\n:INPUT {policy} [0:0]\n{}COMMIT\n", rules.concat())
}

const SSH: &str = "-p tcp -m tcp --dport 22 --syn -m hashlimit --hashlimit-above 10/min \
    --hashlimit-burst 5 --hashlimit-mode srcip --hashlimit-name ssh -j DROP";

/// Namespaces of a process that are left.
fn left(pid: u32) -> Result<Vec<String>> {
    let mine = |name: &String| name.contains("-cmp") && name.contains(&format!("-{pid}-"));
    Ok(netns::all()?.into_iter().filter(mine).collect())
}

fn rows(output: &Output) -> Result<Vec<Value>> {
    let said = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).with_context(|| said.to_string())?;
    Ok(report["rows"].as_array().context("no rows")?.clone())
}

#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn rules_and_their_translation_let_the_same_pass() -> Result<()> {
    require_root();
    let dir = WorkDir::create("compare")?;
    let file = dir.write("saved", iptables("ACCEPT", &[SSH]))?;
    let child = compare(&file)?.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let pid = child.id();
    let output = child.wait_with_output()?;
    let rows = rows(&output)?;
    ensure!(output.status.code() == Some(0), "{rows:?}");
    ensure!(rows.len() == 5, "{rows:?}");
    for row in &rows {
        // One packet comes back in six seconds.
        let offered = row["offered"].as_u64().context("no count")?;
        for side in ["old", "limiter", "arithmetic"] {
            let passed = row["passed"][side].as_u64().context("no count")?;
            ensure!(passed.abs_diff(offered.min(5)) <= 1, "{side}: {row}");
        }
        ensure!(row["finding"] == "same", "{row}");
    }
    ensure!(left(pid)?.is_empty(), "{:?}", left(pid)?);
    Ok(())
}

/// A burst of bytes there is one of whole seconds, and import says so; and what the policy drops,
/// whatever its rate, says nothing of a limit.
#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn differences_are_named_and_what_others_drop_is_none() -> Result<()> {
    require_root();
    let dir = WorkDir::create("compare")?;
    let bytes = "-p udp -m udp --dport 53 -m hashlimit --hashlimit-above 100kb/s --hashlimit-burst \
        120kb --hashlimit-mode srcip --hashlimit-name dns -j DROP";
    let findings = |policy: &str, code: i32| -> Result<Vec<String>> {
        let file = dir.write("saved", iptables(policy, &[bytes]))?;
        let output = compare(&file)?.output()?;
        let rows = rows(&output)?;
        ensure!(output.status.code() == Some(code), "{rows:?}");
        Ok(rows.iter().map(|row| format!("{}{}", row["finding"], row["letters"])).collect())
    };
    let accepted = findings("ACCEPT", 0)?;
    ensure!(accepted.first().is_some_and(|said| said == "\"named\"\"C\""), "{accepted:?}");
    ensure!(accepted.get(1).is_some_and(|said| said == "\"same\"\"\""), "{accepted:?}");
    // A run that compares nothing is sure of nothing.
    let dropped = findings("DROP", 1)?;
    ensure!(dropped.iter().all(|said| said.starts_with("\"dropped_by_others\"")), "{dropped:?}");
    Ok(())
}

/// Sources that are exempt are tried as well, and a source that is not is one outside of them.
#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn exempt_sources_are_tried_beside_the_others() -> Result<()> {
    const NEW: &str = "-p tcp -m tcp --dport 22 -m conntrack --ctstate NEW -m recent";
    require_root();
    let dir = WorkDir::create("compare")?;
    let counts = format!("{NEW} --update --seconds 60 --hitcount 4 --rsource -j DROP");
    let notes = format!("{NEW} --set --rsource -j ACCEPT");
    let lines = [&counts, "-s 198.51.100.0/24 -p tcp -m tcp --dport 22 -j ACCEPT", &notes];
    let file = dir.write("saved", iptables("ACCEPT", &lines))?;
    let output = compare(&file)?.output()?;
    let rows = rows(&output)?;
    ensure!(output.status.code() == Some(0), "{rows:?}");
    let passed = |row: &Value| (row["passed"]["old"].as_u64(), row["passed"]["limiter"].as_u64());
    let first = rows.first().context("no row")?;
    ensure!(passed(first) == (Some(4), Some(4)), "{first}");
    let last = rows.last().context("no row")?;
    ensure!(last["rule"] == "line 3, exempt", "{last}");
    ensure!(passed(last) == (Some(8), Some(8)), "{last}");
    Ok(())
}

#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn an_interrupted_comparison_leaves_nothing() -> Result<()> {
    require_root();
    let dir = WorkDir::create("compare")?;
    let file = dir.write("saved", iptables("ACCEPT", &[SSH]))?;
    let mut child = compare(&file)?.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let mut said = BufReader::new(child.stderr.take().context("no standard error")?).lines();
    let first = said.next().context("it said nothing")??;
    ensure!(first.contains("passed"), "{first}");
    let pid = child.id();
    ensure!(left(pid)?.len() == 4, "{:?}", left(pid)?);
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw).context("no process")?;
    kill_process(process, Signal::INT)?;
    let rest: Vec<String> = said.map_while(std::result::Result::ok).collect();
    let status = child.wait()?;
    ensure!(status.code() == Some(130), "{status}: {rest:?}");
    ensure!(left(pid)?.is_empty(), "{:?}", left(pid)?);
    Ok(())
}

#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn what_cannot_be_compared_is_refused() -> Result<()> {
    require_root();
    let texts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../limiter-userspace/import/src/tests");
    for (name, why) in [
        ("tc-text", "cannot load what it prints"),
        ("ufw-user", "compare `iptables-save` of all of them"),
        ("ipset-save", "a list has no limit"),
    ] {
        let output = compare(&texts.join("texts").join(name))?.output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(2) && said.contains(why), "{name}: {said}");
    }
    let dir = WorkDir::create("compare")?;
    let broken = SSH.replace("hashlimit-burst 5", "hashlimit-burst 5 --nonsense");
    let file = dir.write("saved", iptables("ACCEPT", &[SSH, "-j NOWHERE"]))?;
    let output = compare(&file)?.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1) && said.contains("cannot be loaded here"), "{said}");
    let file = dir.write("saved", iptables("ACCEPT", &[&broken]))?;
    let output = compare(&file)?.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(said.contains("no limit was translated"), "{said}");
    ensure!(said.contains("line 3: `--nonsense` is not known"), "{said}");
    Ok(())
}
