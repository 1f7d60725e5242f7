//! `limiter check`.

use std::io;
use std::path::PathBuf;

use limiter_common::bucket::MAX_SLOTS;
use limiter_daemon::api::status::Status;
use limiter_daemon::check;
use limiter_daemon::control::Client;
use limiter_daemon::render;

use super::answer::Answer;
use super::args::defaults::{LEAST_FRAME, MAX_RULES};
use super::failure::Failure;
use super::output::Output;

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub(super) struct Check {
    /// Rule files, and directories of them; `-` is standard input
    #[arg(value_name = "FILE|DIR", required = true)]
    files: Vec<PathBuf>,
    /// The largest frame of the interfaces in bytes: the MTU, and 22 for Ethernet with two VLAN
    /// tags
    #[arg(
        long, value_name = "BYTES", default_value_t = LEAST_FRAME,
        value_parser = clap::value_parser!(u64).range(LEAST_FRAME..=131_071),
    )]
    max_frame: u64,
    /// As for `run`: the rules that fit
    #[arg(
        long, value_name = "N", default_value_t = MAX_RULES,
        value_parser = clap::value_parser!(u32).range(16..i64::from(MAX_SLOTS)),
    )]
    max_rules: u32,
}

/// Checks rule files; a mistake is an answer, with exit code 2.
pub(super) fn check(what: &Check, client: &Client, output: Output) -> Result<Answer, Failure> {
    let mut checked =
        check::check(&what.files, &mut io::stdin().lock(), what.max_frame, what.max_rules);
    // No daemon is needed; a running one knows the interfaces that are limited.
    if checked.names_interfaces()
        && let Ok(status) = client.get::<Status>("/v1/status")
    {
        let names = status.interfaces.into_iter().map(|interface| interface.name);
        checked.limited_on(&names.collect::<Vec<_>>());
    }
    let mut answer = Answer { code: if checked.ok { 0 } else { 2 }, ..Answer::default() };
    match output.document(&checked)? {
        Some(text) => answer.text = text,
        None if checked.ok => answer.text = render::text(&checked),
        None => {
            answer.errors = checked.errors.into_iter().map(|error| error.message).collect();
        }
    }
    Ok(answer)
}
