//! `limiter sources`.

use limiter_api::client::Client;
use limiter_api::sources::{AskSources, SourceList};
use limiter_rules::source_text;

use crate::failure::Failure;

pub(crate) fn ask(client: &Client, ask: &AskSources) -> Result<SourceList, Failure> {
    ask.prefix.as_deref().map(source_text::parse).transpose()?;
    Ok(client.ask("/v1/sources", ask)?)
}

/// Packets a second between two counts, `nanos` apart; `None` if the counter began anew.
#[expect(clippy::cast_precision_loss, reason = "a rate is shown with few digits")]
pub(crate) fn rate(before: u64, now: u64, nanos: u64) -> Option<f64> {
    let packets = now.checked_sub(before)?;
    (nanos > 0).then(|| packets as f64 * 1e9 / nanos as f64)
}
