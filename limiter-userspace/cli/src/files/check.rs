//! `limiter check`.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use limiter_api::client::Client;
use limiter_api::render;
use limiter_api::status::Status;
use limiter_common::bucket::MAX_SLOTS;
use limiter_daemon::check;
use limiter_daemon::check::Checked;
use serde::Serialize;

#[cfg(feature = "requests")]
use super::check_requests::{CheckedRequests, Divided};
use crate::answer::Answer;
use crate::args::defaults::{LEAST_FRAME, MAX_RULES};
use crate::failure::Failure;
use crate::output::Output;

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// Rule files, and directories of them; `-` is standard input
    #[arg(value_name = "FILE|DIR", required = true)]
    files: Vec<PathBuf>,
    /// Read all files as `limiter serve` does, also where their keys are those of packets
    #[cfg(feature = "requests")]
    #[arg(long)]
    requests: bool,
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

/// What rules for packets and rules for requests mean.
#[derive(Serialize)]
struct All<'a> {
    #[serde(flatten)]
    packets: &'a Checked,
    /// What the rules for requests mean, if there are any.
    #[cfg(feature = "requests")]
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<&'a CheckedRequests>,
}

/// Checks rule files; a mistake is an answer, with exit code 2.
pub(crate) fn check(what: &Check, client: &Client, output: Output) -> Result<Answer, Failure> {
    #[cfg(feature = "requests")]
    let Divided { packets, requests } = Divided::of(&what.files, what.requests);
    #[cfg(not(feature = "requests"))]
    let packets = Some(&what.files);
    let of_packets = packets.is_some();
    let mut checked = match &packets {
        Some(files) => check::check(files, &mut io::stdin().lock(), what.max_frame, what.max_rules),
        None => Checked::nothing(),
    };
    // No daemon is needed; a running one knows the interfaces that are limited.
    if checked.names_interfaces()
        && let Ok(status) = client.get::<Status>("/v1/status")
    {
        let names = status.interfaces.into_iter().map(|interface| interface.name);
        checked.limited_on(&names.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>());
    }
    #[cfg(feature = "requests")]
    if let Some(requests) = &requests {
        checked.ok &= requests.errors.is_empty();
        checked.errors.extend_from_slice(&requests.errors);
    }
    let mut answer = Answer { code: if checked.ok { 0 } else { 2 }, ..Answer::default() };
    let all = All {
        packets: &checked,
        #[cfg(feature = "requests")]
        requests: requests.as_ref(),
    };
    match output.document(&all)? {
        Some(text) => answer.text = text,
        None if checked.ok => {
            if of_packets {
                answer.text = render::text(&checked);
            }
            #[cfg(feature = "requests")]
            if let Some(requests) = &requests {
                if of_packets {
                    // The kernel decides by one part, but not by the other.
                    answer.text.insert_str(0, "The kernel decides:\n\n");
                    answer.text.push_str("\n`limiter serve` answers:\n\n");
                }
                answer.text.push_str(&render::text(requests));
            }
        }
        None => {
            answer.errors = checked.errors.into_iter().map(|error| error.message).collect();
        }
    }
    Ok(answer)
}
