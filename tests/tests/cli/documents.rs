//! Exit codes and forms of answers, of the real binary.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::captures;
use limiter_tests::limiter;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::work_dir::WorkDir;
use serde_json::Value;

use super::RULES;

fn code(line: &str, stdout: Stdio) -> Result<Option<i32>> {
    let mut command = Command::new(limiter::binary()?);
    let status = command.args(line.split(' ')).stdout(stdout).stderr(Stdio::null()).status()?;
    Ok(status.code())
}

/// A row for each kind of end that docs/operations-reference.md has; `diff` has its own in
/// `rule_sets`.
#[test]
fn exit_codes_are_the_documented_ones() -> Result<()> {
    let dir = WorkDir::create("exitcodes")?;
    let good = dir.write("good.yaml", RULES)?;
    let bad = dir.write("bad.yaml", "descriptors: {}\n")?;
    let (good, bad) = (good.to_str().context("path")?, bad.to_str().context("path")?);
    let rows = [
        ("--version".to_owned(), 0),
        ("help run".to_owned(), 0),
        ("schema".to_owned(), 0),
        ("completions fish".to_owned(), 0),
        ("man".to_owned(), 0),
        (format!("check {good}"), 0),
        (format!("check {bad}"), 2),
        (format!("check {bad} --output yaml"), 2),
        ("statsu".to_owned(), 2),
        ("status --output xml".to_owned(), 2),
        ("status --socket /nowhere/limiter.sock".to_owned(), 2),
        (format!("diff {good} --socket /nowhere/limiter.sock"), 2),
        ("off --socket /nowhere/limiter.sock --pin-dir /nowhere/pins".to_owned(), 2),
        ("man --dir /dev/null/man".to_owned(), 2),
        (format!("run --iface nosuch0 --rules {bad}"), 2),
        ("explain --pcap /nowhere/x.pcap".to_owned(), 2),
    ];
    for (line, expected) in rows {
        let code = code(&line, Stdio::null())?;
        ensure!(code == Some(expected), "limiter {line}: exit code {code:?}, not {expected}");
    }
    // Nothing was refused, and it was not done.
    let full = || Ok::<_, std::io::Error>(Stdio::from(File::create(Path::new("/dev/full"))?));
    for line in ["schema".to_owned(), "completions bash".to_owned(), format!("check {good}")] {
        let code = code(&line, full()?)?;
        ensure!(code == Some(1), "limiter {line} > /dev/full: exit code {code:?}");
    }
    Ok(())
}

/// As from `tcpdump -w -`, of which nobody knows how much comes at once.
#[test]
fn a_capture_may_come_through_a_pipe() -> Result<()> {
    let file = captures::directory().join("hping3.pcap");
    let bytes = fs::read(&file)?;
    let explain = |pcap: &Path| {
        let mut command = Command::new(limiter::binary()?);
        // The packets of a pipe are answered as they come, before it is known which are the host's.
        command.args(["explain", "--own", "none", "--json", "--pcap"]).arg(pcap);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok::<_, anyhow::Error>(command)
    };
    let piped = |bytes: &[u8], first: usize| {
        let mut child = explain(Path::new("-"))?.spawn()?;
        let mut input = child.stdin.take().context("a pipe")?;
        let (first, rest) = bytes.split_at(first);
        for part in [first, rest] {
            input.write_all(part)?;
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        drop(input);
        Ok::<_, anyhow::Error>(child.wait_with_output()?)
    };
    let expected = explain(&file)?.output()?;
    ensure!(expected.status.success() && !expected.stdout.is_empty(), "{expected:?}");
    for first in [0, 3, 24, 30, bytes.len()] {
        let output = piped(&bytes, first)?;
        ensure!(output.status.success(), "{first} bytes first: {output:?}");
        ensure!(output.stdout == expected.stdout, "{first} bytes first: another answer");
    }
    for (bytes, reported) in [
        (&bytes[..0], "limiter: standard input: it is empty: "),
        (&bytes[..30], "limiter: standard input: it ends within packet 1: "),
    ] {
        let output = piped(bytes, 0)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(2) && said.starts_with(reported), "{output:?}");
    }
    Ok(())
}

#[test]
fn every_answer_is_the_same_in_yaml() -> Result<()> {
    require_root();
    let bed = Testbed::create("yaml")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    limiter.ok(["set", "192.0.2.7", "5/s"])?;
    limiter.ok(["deny", "198.51.100.0/24"])?;
    // The answers say how it was before.
    limiter.ok(["allow", "203.0.113.1"])?;
    let rules = limiter.rules().to_str().context("path")?.to_owned();
    let commands: [&[&str]; 10] = [
        &["status"],
        &["list"],
        &["stats"],
        &["show", "192.0.2.7"],
        &["lists"],
        &["bans"],
        &["export"],
        &["diff", &rules],
        &["allow", "203.0.113.1"],
        &["on"],
    ];
    for command in commands {
        let json = limiter.json(command)?;
        let text = limiter.ok(command.iter().chain(&["--output", "yaml"]))?;
        let yaml: Value = serde_saphyr::from_str(&text).with_context(|| text.clone())?;
        ensure!(json == yaml, "{command:?}: {json} in JSON, {text} in YAML");
        // Nobody at a terminal asked for it: no colours.
        ensure!(!limiter.ok(command)?.contains('\x1b'), "{command:?}: colours in a pipe");
    }
    limiter.close()?;
    bed.close()
}

/// Words of the arguments, and what the daemon has now.
#[test]
fn bash_completes_words_and_living_values() -> Result<()> {
    require_root();
    let bed = Testbed::create("words")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    limiter.ok(["deny", "198.51.100.7", "198.51.100.0/28", "203.0.113.5"])?;
    limiter.ok(["ban", "192.0.2.77", "--for", "1h"])?;
    limiter.ok(["set", "192.0.2.9", "5/s"])?;
    let directory = WorkDir::create("words")?;
    let binary = limiter::binary()?;
    let script = directory.path().join("limiter");
    fs::write(&script, limiter.ok(["completions", "bash"])?)?;
    let complete = |words: &str, at: usize| -> Result<String> {
        let asked = format!(
            "PATH={}:$PATH; source {}; COMP_WORDS=({words}); COMP_CWORD={at}; COMP_TYPE=9; \
             _clap_complete_limiter limiter \"${{COMP_WORDS[{at}]}}\" \
             \"${{COMP_WORDS[{at}-1]}}\"; echo \"${{COMPREPLY[*]}}\"",
            binary.parent().context("a directory")?.display(),
            script.display()
        );
        let output = Command::new("bash").args(["-c", &asked]).output()?;
        // Outside of a completion there are no options of it.
        let errors = String::from_utf8(output.stderr)?;
        let others = errors.lines().any(|line| !line.contains("compopt"));
        ensure!(output.status.success() && !others, "{errors}");
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    let socket = format!("limiter --socket {}", limiter.socket().display());
    for (words, at, offered) in [
        ("limiter sta".to_owned(), 1, "status stats"),
        ("limiter run --watch-".to_owned(), 2, "--watch-trial --watch-interval"),
        ("limiter status --output y".to_owned(), 3, "yaml"),
        ("limiter detach --iface l".to_owned(), 3, "lo"),
        (format!("{socket} unlist 198"), 4, "198.51.100.0/28 198.51.100.7"),
        (format!("{socket} unban 19"), 4, "192.0.2.77"),
        (format!("{socket} unset 1"), 4, "192.0.2.9"),
        // Nobody there: no values, and no error.
        ("limiter --socket /nowhere/s unlist 198".to_owned(), 4, ""),
    ] {
        let complete = complete(&words, at)?;
        ensure!(complete == offered, "{words}: {complete:?}");
    }
    limiter.close()?;
    bed.close()
}
