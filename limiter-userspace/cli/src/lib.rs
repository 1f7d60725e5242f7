//! The command line: arguments, one request, one answer.
//!
//! Exit codes: `EXIT_CODES` of `args`, which are in the manual.

mod answer;
mod args;
mod blocks;
mod caller;
mod capture;
mod check;
#[cfg(feature = "requests")]
mod check_requests;
mod commands;
mod completion_values;
mod demo;
mod doctor;
mod events;
#[cfg(feature = "replay")]
mod explain;
mod explain_now;
#[cfg(feature = "replay")]
mod explain_summary;
mod export;
mod failure;
mod first_rules;
mod hangup;
mod help;
#[cfg(feature = "import")]
mod import;
mod limits;
mod lists;
#[cfg(feature = "replay")]
mod live;
mod observe;
mod output;
mod pinned;
#[cfg(feature = "replay")]
mod progress;
#[cfg(feature = "replay")]
mod reading;
mod rule_sets;
#[cfg(feature = "requests")]
mod serve;
#[cfg(feature = "requests")]
mod serve_daemon;
mod shells;
#[cfg(feature = "replay")]
mod simulate;
mod sources;
mod ticker;
mod top;
#[cfg(feature = "replay")]
mod tune;
mod usage;
mod way;
mod without_daemon;

use std::io::{self, Write as _};
use std::process::ExitCode;

use limiter_datapath::Backend;
use limiter_text::stderr::say;

use answer::Answer;
pub use args::Args;
pub use failure::Failure;

/// Parses the arguments of this process and does what they say.
pub fn main(backend: &dyn Backend) -> ExitCode {
    completion_values::answer(Args::definition);
    // Wrong arguments end here, with exit code 2.
    let args = match Args::parsed() {
        Ok(args) => args,
        Err(error) => return usage::refuse(error),
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
