//! `limiter sources`.

use std::fmt::Write as _;

use super::failure::Failure;
use super::render::{Render, number, push, table};
use crate::control::Client;
use crate::control::api::lists::ListName;
use crate::control::api::sources::{By, MOST_SOURCES, SOURCES, SourceList, SourceRow};
use crate::rules::source_text;

/// Which sources to list.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "All tracked sources are read once. For `rate` and `drop-rate` those with the largest \
    counters, and those that used up most of their burst, are read again a quarter of a second later: 1024 \
    of each."
)]
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

/// Packets a second, in few digits.
pub(super) fn per_second(rate: Option<f64>) -> String {
    match rate {
        None => "-".to_owned(),
        Some(rate) if rate >= 10.0 || rate == 0.0 => {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "rounded, and not negative"
            )]
            let whole = rate.round() as u64;
            number(whole)
        }
        Some(rate) => format!("{rate:.1}"),
    }
}

/// A share in per cent.
pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0))
}

/// What becomes of the source beside its rule.
pub(super) fn state(row: &SourceRow) -> String {
    match (row.listed, row.banned_seconds) {
        (Some(ListName::Deny), _) => "denied".to_owned(),
        (Some(ListName::Allow), _) => "allowed".to_owned(),
        (None, Some(seconds)) => format!("banned {} s", number(seconds)),
        (None, None) => String::new(),
    }
}

/// The rows as a table.
pub(super) fn rows(text: &mut String, sources: &[SourceRow]) {
    let mut table = table(&[
        "SOURCE",
        ">DROPPED/S",
        ">DROPPED",
        ">PASSED/S",
        ">PASSED",
        ">USED",
        "LIMIT",
        "RULE",
        "",
    ]);
    for row in sources {
        table.add_row([
            row.source.clone(),
            per_second(row.dropped_per_second),
            number(row.dropped),
            per_second(row.passed_per_second),
            number(row.passed),
            percent(row.nearness),
            row.limit.clone().unwrap_or_else(|| "-".to_owned()),
            row.rule.clone().unwrap_or_else(|| "-".to_owned()),
            state(row),
        ]);
    }
    push(text, &table);
}

impl Render for SourceList {
    fn render(&self, text: &mut String) {
        if self.sources.is_empty() {
            text.push_str("no such source is tracked\n");
        } else {
            rows(text, &self.sources);
        }
        let (v4, v6) = (number(self.tracked_v4), number(self.tracked_v6));
        let _: std::fmt::Result = write!(text, "{v4} IPv4 and {v6} IPv6 sources are tracked");
        if self.within < self.tracked_v4.saturating_add(self.tracked_v6) {
            let _: std::fmt::Result = write!(text, ", {} of them asked for", number(self.within));
        }
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_few_digits() {
        let shown = [None, Some(0.0), Some(0.26), Some(9.96), Some(12.5), Some(1234.5)];
        assert_eq!(shown.map(per_second), ["-", "0", "0.3", "10.0", "13", "1,235"]);
    }
}
