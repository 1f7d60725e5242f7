//! The command line: arguments, one request, one answer.
//!
//! Exit codes: `EXIT_CODES` of `args`, which are in the manual.

mod answer;
mod args;
mod changes;
mod commands;
#[cfg(feature = "import")]
mod crowdsec;
mod demo;
mod doctor;
mod failure;
mod files;
mod output;
mod packets;
mod questions;
#[cfg(feature = "requests")]
mod serve;
mod shell;
mod top;

use std::io::{self, Write as _};
use std::process::ExitCode;

use limiter_datapath::Backend;
use limiter_text::stderr::say;

use answer::Answer;
pub use args::Args;
use changes::pinned;
pub use failure::Failure;
use shell::{completion_values, hangup, usage};

/// Parses the arguments of this process and does what they say.
pub fn main(backend: &dyn Backend) -> ExitCode {
    completion_values::answer(Args::definition);
    // Wrong arguments end here, with exit code 2.
    let args = match Args::parsed() {
        Ok(args) => args,
        Err(error) => return usage::refuse(&error),
    };
    if args.waits_with_a_reader()
        && let Err(error) = hangup::end_with_reader()
    {
        say(format_args!(
            "limiter: it will not be noticed when nobody reads any more: {error}: check the limit \
             of processes"
        ));
    }
    match commands::execute(&args, backend) {
        Ok(answer) => {
            for error in &answer.errors {
                say(format_args!("limiter: {error}"));
            }
            print(&answer)
        }
        Err(failure) => {
            for line in failure.lines() {
                say(format_args!("limiter: {line}"));
            }
            if failure.is_no_daemon()
                && let Some(note) = pinned::still_limited(&args.socket, backend)
            {
                say(format_args!("limiter: {note}"));
            }
            failure.exit_code()
        }
    }
}

/// Prints the answer; a reader that went away early (`| head`) is no failure.
fn print(answer: &Answer) -> ExitCode {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(answer.text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if !hangup::nobody_reads(&error) => {
            say(format_args!(
                "limiter: cannot write to standard output: {error}: check where it goes"
            ));
            ExitCode::FAILURE
        }
        _ => ExitCode::from(answer.code),
    }
}

#[cfg(test)]
mod tests;
