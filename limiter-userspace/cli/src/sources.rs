//! `limiter sources`.

use std::fmt::Write as _;

use limiter_daemon::api::sources::{By, Dropped, MOST_SOURCES, SOURCES, SourceList, drops};
use limiter_daemon::api::top::Top;
use limiter_daemon::control::Client;
use limiter_rules::source_text;

use super::failure::Failure;

/// Arguments of `sources`.
#[derive(Debug, clap::Args)]
#[command(after_help = "All tracked sources are read once. For `rate` and `drop-rate` those with \
                        the largest counters, and those that used up most of their burst, are \
                        read again a quarter of a second later: 1024 of each.")]
pub(super) struct Ask {
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

pub(super) fn ask(client: &Client, ask: &Ask) -> Result<SourceList, Failure> {
    let mut path = format!("/v1/sources?by={}&limit={}", ask.by.name(), ask.top);
    if let Some(prefix) = &ask.within {
        // The parsed form has nothing in it that a URL would have to escape.
        let selector = source_text::parse(prefix)?;
        let _: std::fmt::Result = write!(path, "&prefix={selector}");
    }
    Ok(client.get(&path)?)
}

/// True if counters of the one look go on in the other: the daemon was not started again, so the
/// maps are the same.
pub(super) const fn go_on(before: &Top, now: &Top) -> bool {
    before.clock_ns > 0 && before.began_ns == now.began_ns && before.clock_ns < now.clock_ns
}

/// Drops a second between two looks, if the rules are the same in both.
pub(super) fn drop_rates(before: &Top, now: &Top) -> Option<Dropped<f64>> {
    let time = now.clock_ns.saturating_sub(before.clock_ns);
    let [sources, others, lists] = drops(before.dropped_by);
    let [sources_now, others_now, lists_now] = drops(now.dropped_by);
    let part = |(then, now): (Option<u64>, Option<u64>)| rate(then?, now?, time);
    let same = before.generation == now.generation && go_on(before, now);
    same.then(|| [(sources, sources_now), (others, others_now), (lists, lists_now)].map(part))
}

/// Packets a second between two counts, `nanos` apart; none if the counter began anew.
#[expect(clippy::cast_precision_loss, reason = "a rate is shown with few digits")]
pub(crate) fn rate(before: u64, now: u64, nanos: u64) -> Option<f64> {
    let packets = now.checked_sub(before)?;
    (nanos > 0).then(|| packets as f64 * 1e9 / nanos as f64)
}

/// Packets a second that passed and were dropped between two looks.
pub(crate) fn rates(before: &Top, now: &Top) -> [Option<f64>; 2] {
    if !go_on(before, now) {
        return [None; 2];
    }
    let time = now.clock_ns - before.clock_ns;
    [rate(before.passed, now.passed, time), rate(before.dropped, now.dropped, time)]
}
