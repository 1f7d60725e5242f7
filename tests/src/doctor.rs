//! Reports of `limiter doctor`, and its remedies followed.

use std::ffi::OsStr;
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::limiter::{self, Limiter};
use crate::netns::Netns;

/// A report, and the exit code that came with it.
#[derive(Debug)]
pub struct Report {
    /// The document.
    pub json: Value,
    /// The exit code.
    pub code: Option<i32>,
}

impl Report {
    /// Reads what `limiter doctor --json` printed.
    ///
    /// # Errors
    ///
    /// When that is no report.
    pub fn of(output: &Output) -> Result<Self> {
        let text = String::from_utf8_lossy(&output.stdout);
        let said = String::from_utf8_lossy(&output.stderr);
        let json = serde_json::from_str(&text).with_context(|| format!("{text}{said}"))?;
        Ok(Self { json, code: output.status.code() })
    }

    /// The only finding of a check.
    ///
    /// # Errors
    ///
    /// When there is none, or there are two.
    pub fn finding(&self, check: &str) -> Result<&Value> {
        let all = self.json["findings"].as_array().context("no findings")?;
        let mut of_check = all.iter().filter(|finding| finding["check"] == check);
        let finding = of_check.next().with_context(|| format!("no {check} in {}", self.json))?;
        ensure!(of_check.next().is_none(), "two of {check}: {}", self.json);
        Ok(finding)
    }

    /// Level of a check, once its finding is known to have all of `words`.
    pub fn level(&self, check: &str, words: &[&str]) -> Result<&str> {
        let finding = self.finding(check)?;
        let text = finding.to_string();
        for word in words {
            ensure!(text.contains(word), "{check} does not name {word:?}: {text}");
        }
        finding["level"].as_str().context("no level")
    }

    /// The command that a check names.
    ///
    /// # Errors
    ///
    /// When it names none.
    pub fn command(&self, check: &str) -> Result<&str> {
        let finding = self.finding(check)?;
        finding["command"].as_str().with_context(|| format!("no command: {finding}"))
    }
}

/// The report on an interface, as a user with these pins gets it. `ok` and the exit code agree.
///
/// # Errors
///
/// When they do not, or there is no report.
pub fn report(limiter: &Limiter, interface: &str) -> Result<Report> {
    let (option, pins) = (OsStr::new("--pin-dir"), limiter.pins().as_os_str());
    let args = ["doctor", "--json", "--iface", interface].map(OsStr::new);
    let report = Report::of(&limiter.cli(args.into_iter().chain([option, pins]))?)?;
    let wanted = i32::from(report.json["ok"] != true);
    ensure!(report.code == Some(wanted), "exit code {:?} with {}", report.code, report.json);
    Ok(report)
}

/// A command line without quotes, typed by root; `limiter` is the binary under test.
///
/// # Errors
///
/// When it cannot be started.
pub fn typed(netns: &Netns, line: &str) -> Result<Output> {
    let mut words = line.split_whitespace();
    let program = words.next().context("no command")?;
    let mut command = match program {
        "limiter" => Command::new(limiter::binary()?),
        program => Command::new(program),
    };
    netns.output(command.args(words))
}

/// Follows a remedy.
///
/// # Errors
///
/// When it does not succeed.
pub fn follow(netns: &Netns, line: &str) -> Result<()> {
    let output = typed(netns, line)?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "`{line}` failed: {said}");
    Ok(())
}
