//! A finding of one check, and the report of all.

use limiter_api::render::{Render, line};
use limiter_datapath::DatapathError;
use serde::Serialize;

/// Weight of a finding. The order is the one of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// Limits cannot be put in force, or are not.
    Problem,
    /// Limits are in force or can be, and may not do what they say.
    Warning,
    /// Something could not be seen.
    Unknown,
    Note,
    /// Nothing to do.
    Ok,
}

impl Level {
    const fn word(self) -> &'static str {
        match self {
            Self::Problem => "problem",
            Self::Warning => "warning",
            Self::Unknown => "unknown",
            Self::Note => "note",
            Self::Ok => "ok",
        }
    }
}

/// Outcome of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    /// Interface that it is about, if any.
    pub(super) interface: Option<String>,
    pub(super) level: Level,
    pub(super) seen: String,
    pub(super) remedy: Option<String>,
    /// Command that does it, to be typed as root.
    pub(super) command: Option<String>,
}

impl Finding {
    fn new(level: Level, check: &'static str, seen: impl Into<String>) -> Self {
        let (interface, remedy, command) = (None, None, None);
        Self { check, interface, level, seen: seen.into(), remedy, command }
    }

    pub(super) fn ok(check: &'static str, seen: impl Into<String>) -> Self {
        Self::new(Level::Ok, check, seen)
    }

    pub(super) fn note(check: &'static str, seen: impl Into<String>) -> Self {
        Self::new(Level::Note, check, seen)
    }

    pub(super) fn warning(check: &'static str, seen: impl Into<String>) -> Self {
        Self::new(Level::Warning, check, seen)
    }

    pub(super) fn problem(check: &'static str, seen: impl Into<String>) -> Self {
        Self::new(Level::Problem, check, seen)
    }

    pub(super) fn unknown(check: &'static str, seen: impl Into<String>) -> Self {
        Self::new(Level::Unknown, check, seen)
    }

    /// A finding for an error that would end a start.
    pub(super) fn refused(check: &'static str, error: &DatapathError) -> Self {
        let (seen, remedy) = error.parts();
        Self::problem(check, seen).remedy(remedy)
    }

    /// A check whose question to the kernel failed.
    pub(super) fn unseen(check: &'static str, error: &DatapathError) -> Self {
        Self::unknown(check, error.to_string())
    }

    /// A check that needs privileges.
    pub(super) fn unprivileged(check: &'static str, what: &str) -> Self {
        Self::unknown(check, format!("{what}: needs CAP_BPF and CAP_NET_ADMIN"))
            .remedy("run `limiter doctor` as root")
    }

    pub(super) fn remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }

    pub(super) fn command(self, command: impl Into<String>) -> Self {
        Self { command: Some(command.into()), ..self }
    }

    pub(super) fn on(self, interface: &str) -> Self {
        Self { interface: Some(interface.to_owned()), ..self }
    }
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    /// True if there is no problem.
    pub(super) ok: bool,
    /// The findings, the gravest first.
    pub(super) findings: Vec<Finding>,
    /// True if findings without anything to do are shown one by one.
    #[serde(skip)]
    verbose: bool,
}

impl Report {
    pub(super) fn of(mut findings: Vec<Finding>, verbose: bool) -> Self {
        findings.sort_by_key(|finding| finding.level);
        let ok = findings.iter().all(|finding| finding.level != Level::Problem);
        Self { ok, findings, verbose }
    }
}

impl Render for Report {
    fn render(&self, text: &mut String) {
        let is_shown = |finding: &&Finding| self.verbose || finding.level != Level::Ok;
        for finding in self.findings.iter().filter(is_shown) {
            let Finding { check, interface, level, seen, remedy, command } = finding;
            let at = interface.as_ref().map_or_else(String::new, |name| format!(" {name}"));
            line(text, format_args!("{:<8} {check}{at}: {seen}", level.word()));
            if let Some(remedy) = remedy {
                line(text, format_args!("         {remedy}"));
            }
            if let Some(command) = command {
                line(text, format_args!("         # {command}"));
            }
        }
        let good = self.findings.iter().filter(|finding| finding.level == Level::Ok).count();
        if !self.verbose {
            line(text, format_args!("{:<8} {good} more checks: --verbose shows them", "ok"));
        }
    }
}
