//! `limiter sources`.

use std::fmt::Write as _;

use super::failure::Failure;
use super::render::{Render, number, push, table};
use super::top::rate;
use crate::control::Client;
use crate::control::api::SourceView;
use crate::control::api::lists::ListName;
use crate::control::api::sources::{
    By, DroppedBy, MOST_SOURCES, SOURCES, SourceList, SourceRow, Top,
};
use crate::rules::plain::clean;
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

/// Drops by what dropped them: rules on sources, other rules and budgets, lists and bans.
pub(super) type Dropped<T> = [Option<T>; 3];

/// Drops a second between two looks, if the rules are the same in both.
pub(super) fn drop_rates(before: &Top, now: &Top) -> Option<Dropped<f64>> {
    let time = now.clock_ns.saturating_sub(before.clock_ns);
    let [sources, others, lists] = drops(before.dropped_by);
    let [sources_now, others_now, lists_now] = drops(now.dropped_by);
    let part = |(then, now): (Option<u64>, Option<u64>)| rate(then?, now?, time);
    let same = before.generation == now.generation && time > 0;
    same.then(|| [(sources, sources_now), (others, others_now), (lists, lists_now)].map(part))
}

const fn drops(by: DroppedBy) -> Dropped<u64> {
    [by.sources, by.others, Some(by.lists)]
}

/// The same in words, where sources do not have all of it.
pub(super) fn drop_words<T>(by: Dropped<T>, said: impl Fn(T) -> String) -> Option<String>
where
    T: Copy + Default + PartialEq,
{
    const NAMES: [&str; 3] = ["rules on sources", "other rules and budgets", "lists and bans"];
    let nothing = Some(T::default());
    let [_, others, lists] = by;
    if others == nothing && lists == nothing {
        return None;
    }
    let parts = by.into_iter().zip(NAMES).enumerate();
    let parts = parts.filter(|(place, (number, _))| *place == 0 || *number != nothing);
    let words = parts.map(|(_, (number, name))| match number {
        None => format!("by {name}: not added up"),
        Some(number) => format!("{} by {name}", said(number)),
    });
    Some(words.collect::<Vec<_>>().join(", "))
}

/// Commands that tell of the drops that sources do not have.
pub(super) const WHERE: &str = "`limiter list`, `limiter events`, `limiter explain --from ADDRESS`";

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

/// The same with its unit.
pub(super) fn each_second(rate: f64) -> String {
    format!("{}/s", per_second(Some(rate)))
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

/// What a source is told to fall under that has no rule on sources.
pub(super) fn without_rule(view: &SourceView) -> &'static str {
    let denied = view.listed == Some(ListName::Deny);
    if denied || view.martian || view.banned_seconds.is_some() || view.other_rules_in_all > 0 {
        "none on sources"
    } else {
        "none: not limited"
    }
}

/// Which rules on other keys may drop packets of a source, and who knows more.
pub(super) fn other_rules(view: &SourceView) -> Option<String> {
    let all = view.other_rules_in_all;
    let named: Vec<_> = view.other_rules.iter().map(|rule| clean(rule)).collect();
    let more = all.saturating_sub(u64::try_from(named.len()).unwrap_or(0));
    let more = if more > 0 { format!(" and {} more", number(more)) } else { String::new() };
    (all > 0).then(|| format!("may drop packets of it, too: {}{more}", named.join("; ")))
}

/// The question that tells what such rules do.
pub(super) fn question(view: &SourceView) -> String {
    let address = view.source.split_once('/').map_or(view.source.as_str(), |(address, _)| address);
    format!("limiter explain --from {} --to PORT/PROTOCOL", clean(address))
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
            text.push_str("no such source has a bucket for the rules on sources\n");
        } else {
            rows(text, &self.sources);
        }
        let (v4, v6) = (number(self.tracked_v4), number(self.tracked_v6));
        let _: std::fmt::Result = write!(text, "{v4} IPv4 and {v6} IPv6 sources are tracked");
        if self.within < self.tracked_v4.saturating_add(self.tracked_v6) {
            let _: std::fmt::Result = write!(text, ", {} of them asked for", number(self.within));
        }
        text.push('\n');
        if let Some(words) = drop_words(drops(self.dropped_by), number) {
            // Whoever is dropped by another rule need not be among them.
            let _: std::fmt::Result = writeln!(
                text,
                "dropped in all: {words}; for what is not by rules on sources: {WHERE}"
            );
        }
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
