//! `limiter sources`.

use std::fmt::Write as _;

use limiter_api::client::Client;
use limiter_api::sources::{By, MOST_SOURCES, SOURCES, SourceList};
use limiter_rules::source_text;

use crate::failure::Failure;

/// Arguments of `sources`.
#[derive(Debug, clap::Args)]
#[command(after_help = "All tracked sources are read once. For `rate` and `drop-rate` those with \
                        the largest counters, and those that used up most of their burst, are \
                        read again a quarter of a second later: 1024 of each.")]
pub(crate) struct Ask {
    /// By what they stand out
    #[arg(long, value_enum, default_value_t = By::Dropped)]
    by: By,
    /// How many
    #[arg(
        long, value_name = "N", default_value_t = SOURCES,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_SOURCES)),
    )]
    top: u32,
    /// Only sources in this prefix
    #[arg(long, value_name = "PREFIX")]
    within: Option<String>,
}

pub(crate) fn ask(client: &Client, ask: &Ask) -> Result<SourceList, Failure> {
    let mut path = format!("/v1/sources?by={}&limit={}", ask.by.name(), ask.top);
    if let Some(prefix) = &ask.within {
        // The parsed form has nothing in it that a URL would have to escape.
        let selector = source_text::parse(prefix)?;
        let _: std::fmt::Result = write!(path, "&prefix={selector}");
    }
    Ok(client.get(&path)?)
}

/// Packets a second between two counts, `nanos` apart; `None` if the counter began anew.
#[expect(clippy::cast_precision_loss, reason = "a rate is shown with few digits")]
pub(crate) fn rate(before: u64, now: u64, nanos: u64) -> Option<f64> {
    let packets = now.checked_sub(before)?;
    (nanos > 0).then(|| packets as f64 * 1e9 / nanos as f64)
}
