//! `limiter diff` and `apply`.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};
use std::num::NonZeroU32;
use std::path::PathBuf;

use limiter_api::client::Client;
use limiter_api::render;
use limiter_api::rules::Changed;
use limiter_api::rules::{ApplyRules, CompareRules, Document, RuleLine, RulesDiff};
use limiter_daemon::{rule_files, ssh};
use limiter_text::plain::clean;

use crate::answer::Answer;
use crate::failure::Failure;
use crate::output::Output;

/// The error about files that were not accepted: their own mistake if they have one, which needs no
/// daemon to be reported. They are not parsed earlier, because the daemon does that, and 100,000
/// rules take a second.
fn mistake(documents: &[Document], failure: impl Into<Failure>) -> Failure {
    match rule_files::parse(documents, 0) {
        Ok(_) => failure.into(),
        Err(mistake) => mistake.into(),
    }
}

/// Compares files with the rules in force; 1 is the exit code for a difference.
pub(crate) fn diff(client: &Client, files: &[PathBuf], output: Output) -> Result<Answer, Failure> {
    let request =
        CompareRules { documents: rule_files::read_once(files, &mut io::stdin().lock())? };
    let diff: RulesDiff = client
        .post_document("/v1/rules/diff", &request)
        .map_err(|failure| mistake(&request.documents, failure))?;
    let text = output.document(&diff)?.unwrap_or_else(|| text(&diff, is_colourful()));
    Ok(Answer { text, code: u8::from(!diff.same), ..Answer::default() })
}

/// Puts files in the place of the daemon's rule files.
pub(crate) fn apply(
    client: &Client,
    files: &[PathBuf],
    force: bool,
    confirm_seconds: Option<NonZeroU32>,
) -> Result<Changed, Failure> {
    let documents = rule_files::read_once(files, &mut io::stdin().lock())?;
    let request = ApplyRules { documents, force, confirm_seconds, session: ssh::own_session() };
    client.put("/v1/rules", &request).map_err(|failure| mistake(&request.documents, failure))
}

/// Colours are for a terminal, unless the user opted out: <https://no-color.org>.
fn is_colourful() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty())
}

/// The difference, line by line.
pub(crate) fn text(diff: &RulesDiff, colour: bool) -> String {
    let mut text = String::new();
    let mut line = |sign: char, code: u8, what: &str| {
        let what = clean(what);
        // Writing to a `String` cannot fail.
        let _: std::fmt::Result = if colour {
            writeln!(text, "\x1b[{code}m{sign} {what}\x1b[0m")
        } else {
            writeln!(text, "{sign} {what}")
        };
    };
    for RuleLine { subject, text } in &diff.removed {
        line('-', 31, &format!("{subject}: {text}"));
    }
    for changed in &diff.changed {
        let (old, new) = (&changed.old, &changed.new);
        line('~', 33, &format!("{}: {old} -> {new}", changed.subject));
    }
    for RuleLine { subject, text } in &diff.added {
        line('+', 32, &format!("{subject}: {text}"));
    }
    let (added, removed, changed) = (diff.added.len(), diff.removed.len(), diff.changed.len());
    let _: std::fmt::Result = writeln!(
        text,
        "{added} added, {removed} removed, {changed} changed, {} unchanged",
        diff.unchanged
    );
    for RuleLine { subject, text: limit } in &diff.edits {
        render::line(&mut text, format_args!("kept from `limiter set`: {subject}: {limit}"));
    }
    render::warnings(&mut text, &diff.requests);
    text
}
